"""One fault: what it breaks, where, and which test must notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

CORE = "core/eigenveil"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`claim` fails where `old` in `file` reads `new`."""

    claim: str
    file: str
    old: str
    new: str
    test: str


def of(claim: str, file: str, old: str, new: str, test: str) -> Mutant:
    """A mutant; files without a folder are of the core."""
    file = file if file.startswith(("server/", "client/", "common/")) else f"{CORE}/{file}"
    return Mutant(claim=claim, file=file, old=old, new=new, test=test)


def each(claim: str, file: str, test: str, *changes: tuple[str, str]) -> Iterator[Mutant]:
    """Mutants of one file, each of which one test must notice."""
    for old, new in changes:
        yield of(claim, file, old, new, test)

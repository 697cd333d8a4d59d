"""One planted fault, as the table writes it down."""

from __future__ import annotations

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

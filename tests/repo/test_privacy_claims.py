"""Every claim of core/PRIVACY.md is made by code and held to it by a test, and nothing leans on a
claim that is not there.

A claim is defined where its id opens a heading, a list item, a table row or a bold phrase:
`## [P1] ...`, `- [P1] ...`, `| [P1] | ...`, `**[P1]** ...`. Elsewhere the id is a citation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.repo.tree import ROOT, documents, files, shown

PRIVACY = ROOT / "core" / "PRIVACY.md"
DEFINITION = re.compile(r"^ {0,3}(?:#+ +|[-*] +|\| *|(?=\*\*))(?:\*\*)?\[(P\d+)\]", re.MULTILINE)
CITATION = re.compile(r"(?<!\w)\[(P\d+(?:, ?P\d+)*)\]")


def defined(text: str) -> list[str]:
    return DEFINITION.findall(text)


def cited(text: str) -> set[str]:
    """Claim ids that `text` cites, alone or in a list."""
    return {claim.strip() for group in CITATION.findall(text) for claim in group.split(",")}


def cited_in(paths: Iterable[Path]) -> set[str]:
    return set().union(*(cited(path.read_text()) for path in paths))


def behaviour_tests() -> list[Path]:
    """All tests but these: the repo tests talk about ids without testing a claim."""
    return [p for p in files("*.py", "tests") if not p.is_relative_to(ROOT / "tests" / "repo")]


def claims() -> set[str]:
    return set(defined(PRIVACY.read_text()))


def test_definitions_and_citations_are_distinguished() -> None:
    text = "## [P1] One\n- [P2] two\n**[P3]** three, by [P1]\n| [P4] | four |\n[P5] wrapped prose\n"
    assert defined(text) == ["P1", "P2", "P3", "P4"]
    assert cited("Privacy: Gaussian sum [P3], [P4, P5] and [P6][P7]; row[P8]") == {
        "P3", "P4", "P5", "P6", "P7",
    }  # fmt: skip


def test_each_claim_is_defined_once() -> None:
    ids = defined(PRIVACY.read_text())
    assert ids, "core/PRIVACY.md defines no claim"
    assert len(ids) == len(set(ids)), sorted({i for i in ids if ids.count(i) > 1})


def test_each_claim_is_cited_by_core() -> None:
    assert claims() - cited_in(files("*.py", "core")) == set()


def test_each_claim_is_cited_by_a_test() -> None:
    assert claims() - cited_in(behaviour_tests()) == set()


def test_each_cited_id_is_defined() -> None:
    sources = [*files("*.py", "core", "common", "server", "client"), *behaviour_tests(), *documents()]
    known = claims()
    unknown = {shown(p): sorted(cited(p.read_text()) - known) for p in sources}
    assert {path: ids for path, ids in unknown.items() if ids} == {}

"""Sentences count rounds from 1, as `eigenveil study watch` does; fields, logs and audits from 0."""

from __future__ import annotations

import re

from tests.repo.tree import PACKAGES, is_generated, shown

# "round {...}" or "round={...}" in a sentence; an audit's "study {...} round {...}" is a record.
BARE = re.compile(r"(?<!\} )\brounds? \{(?!len|round \+ 1)")


def bare(source: str) -> list[str]:
    return [line.strip() for line in source.splitlines() if BARE.search(line)]


def test_no_sentence_counts_rounds_by_itself() -> None:
    assert bare('f"round {query.round} would"') != []
    assert bare('f"study {study} round {round} mac "') == bare('f"{spoken(round)} would"') == []
    sources = [path for root in PACKAGES.values() for path in root.rglob("*.py") if not is_generated(path)]
    assert {shown(path): found for path in sources if (found := bare(path.read_text()))} == {}

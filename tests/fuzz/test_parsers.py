"""Whatever a study, a plan or a file of records says: it is taken, or refused with a code and a sentence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fuzz.hunt import hunt
from tests.fuzz.parsers import parser_kinds

KINDS = (
    "study", "plan", "dictionary", "published", "statement", "csv", "parquet", "release", "config", "join",
    ".bed", ".bim", ".fam",
)  # fmt: skip


def tried(folder: Path, name: str, inputs: int, seed: int) -> None:
    kinds = {name: parser_kinds(folder)[name]}
    tally = asyncio.run(hunt(kinds, inputs, seed))
    assert tally.finds == {}, "kept in tests/fuzz/found"
    assert 0 < tally.accepted < inputs


@pytest.mark.parametrize("name", KINDS)
def test_changed_input_is_taken_or_refused_by_a_declared_error(tmp_path: Path, name: str) -> None:
    tried(tmp_path, name, 150, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_much_changed_input_is_taken_or_refused_by_a_declared_error(tmp_path: Path, name: str) -> None:
    tried(tmp_path, name, 5_000, seed=2)

"""Whatever a study, a plan or a file of records says: it is taken, or refused with a code and a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.hunt import hunt
from tests.fuzz.parsers import parser_kinds

KINDS = (
    "study", "plan", "dictionary", "published", "statement", "csv", "parquet", "release", "config", "join",
    ".bed", ".bim", ".fam",
)  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "seed"), [(150, 1), pytest.param(5_000, 2, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", KINDS)
async def test_changed_input_is_accepted_or_refused_by_a_declared_error(
    tmp_path: Path, name: str, inputs: int, seed: int
) -> None:
    tally = await hunt({name: parser_kinds(tmp_path)[name]}, inputs, seed)
    assert tally.finds == {}, "stored in tests/fuzz/found"
    assert 0 < tally.accepted < inputs

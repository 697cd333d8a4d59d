"""The table of planted faults fits the code: nothing stale, no claim without one, every test there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.mutants.__main__ import LINT, ROOT, report
from tests.mutants.mutant import Mutant, of
from tests.mutants.table import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.claim}-{m.file}")
def test_a_planted_fault_fits_the_code_and_its_test_exists(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    assert text.count(mutant.old) == 1, "stale: mend its line in tests/mutants/table.py"
    ast.parse(text.replace(mutant.old, mutant.new))
    if mutant.test != LINT:
        file, _, name = mutant.test.partition("::")
        wanted = f"def {name.partition('[')[0]}(" if name else "def test_"  # some name a whole file
        assert wanted in (ROOT / file).read_text()


def test_every_claim_has_a_planted_fault() -> None:
    claims = re.findall(r"^## \[(P\d+)\]", (ROOT / "core" / "PRIVACY.md").read_text(), re.MULTILINE)
    threats = re.findall(r"^\| (TM\d+) \|", (ROOT / "docs" / "THREATS.md").read_text(), re.MULTILINE)
    planted = {mutant.claim for mutant in MUTANTS}
    assert set(claims) <= planted <= {*claims, *threats}
    assert len(MUTANTS) >= 40


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fault_that_no_test_sees_is_counted_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    comment, stale = ("# Its tables are", "# The tables are"), ("no such text", "")
    test = "tests/core/noise/test_source.py::test_no_change_that_records_make_costs_more_than_the_price"
    faults = tuple(of("P2", "noise/source.py", *change, test) for change in (comment, stale))
    assert not report(faults, 1)
    said = capsys.readouterr().out
    assert "NOT CAUGHT" in said
    assert "STALE" in said
    assert "0 of 2 caught" in said

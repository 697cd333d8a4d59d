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


# Where the ids that a row may name are defined: claims of privacy, rules of the protocol, threats.
IDS = {
    "core/PRIVACY.md": r"^## \[(P\d+)\]",
    "proto/PROTOCOL.md": r"^\*\*\[(R\d+)\]",
    "docs/THREATS.md": r"^\| (TM\d+) \|",
}


def ids_in(page: str) -> set[str]:
    """The ids that a page defines."""
    return set(re.findall(IDS[page], (ROOT / page).read_text(), re.MULTILINE))


def test_every_privacy_claim_has_a_planted_fault_and_every_fault_names_a_defined_id() -> None:
    named = {mutant.claim for mutant in MUTANTS}
    assert all(ids_in(page) for page in IDS)
    assert ids_in("core/PRIVACY.md") <= named
    assert named <= set().union(*map(ids_in, IDS))


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

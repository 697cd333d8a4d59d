"""The table of planted faults fits the code: nothing stale, no claim without one, every test there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.__main__ import report
from tests.mutants.mutant import Mutant, of
from tests.mutants.table import MUTANTS
from tests.mutants.trees import LINT, ROOT, missing


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.claim}-{m.file}")
def test_a_planted_fault_fits_the_code(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    assert text.count(mutant.old) == 1, "stale: mend its line in tests/mutants/table.py"
    ast.parse(text.replace(mutant.old, mutant.new))


@cache
def functions(file: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(file.read_text())) if file.is_file() else ()
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def unknown(test: str) -> bool:
    """True if the file or the function of a row's test is missing; its parameter is ignored."""
    file, *parts = test.partition("[")[0].split("::")
    here = functions(ROOT / file)
    return not here or (bool(parts) and parts[-1] not in here and parts[-1] != "runTest")


STALE = {
    "tests/core/noise/test_sampler.py::test_nobody_wrote_it",
    "tests/core/algorithms/test_bounds.py::test_no_lie_leads_beyond_them[Algorithm.GAUSS_COV-random]",
    "tests/core/noise/test_no_such_file.py",
}


@pytest.mark.slow
def test_pytest_collects_every_test_that_a_row_names() -> None:
    """Planted: a function, a parameter and a file that are not there."""
    assert missing(ROOT, {mutant.test for mutant in MUTANTS} | STALE) == STALE


def test_every_row_names_a_function_that_is_there() -> None:
    """Quick part of the test above: parameters and classes are pytest's to find."""
    named = {mutant.test for mutant in MUTANTS} - {LINT}
    assert {test for test in named | STALE if unknown(test)} == {test for test in STALE if "[" not in test}


# Where the ids that a row may name are defined: claims of privacy, rules of the protocol, threats.
IDS = {
    "core/PRIVACY.md": r"^## \[(P\d+)\]",
    "proto/PROTOCOL.md": r"^\*\*\[(R\d+)\]",
    "docs/THREATS.md": r"^\| (TM\d+) \|",
}


def ids_in(page: str) -> set[str]:
    return set(re.findall(IDS[page], (ROOT / page).read_text(), re.MULTILINE))


def test_every_privacy_claim_has_a_planted_fault_and_every_fault_names_a_defined_id() -> None:
    named = {mutant.claim for mutant in MUTANTS}
    assert all(ids_in(page) for page in IDS)
    assert ids_in("core/PRIVACY.md") <= named
    assert named <= set().union(*map(ids_in, IDS))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fault_that_no_test_sees_is_counted_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """And rows whose text or test is not there are reported, while the rest runs."""
    comment, stale = ("# The import computes", "# An import computes"), ("no such text", "")
    test = "tests/core/noise/test_sampler.py::test_it_is_written_with_its_sign"
    faults = tuple(of("P2", "noise/source.py", *change, test) for change in (comment, stale))
    gone = of("P2", "noise/source.py", *comment, min(STALE))
    assert not report((*faults, gone), 1)
    message = capsys.readouterr().out
    assert message.count("NOT CAUGHT") == 1
    assert message.count("STALE") == 2
    assert "0 of 3 caught" in message

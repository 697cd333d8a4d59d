"""The checks run in an order, and beside each other, that changes nothing of what they measure."""

from __future__ import annotations

import pytest

from tests.torture.checks import ALONE, CHECKS, LONGEST, batches, check, run


def test_checks_of_memory_and_time_run_alone_and_every_check_runs_once() -> None:
    assert set(ALONE) | set(LONGEST) <= CHECKS.keys()
    assert batches(tuple(CHECKS), 1) == [(list(CHECKS), 1)]
    (alone, one), (others, jobs) = batches(tuple(CHECKS), 3)
    assert (one, jobs) == (1, 3)
    assert sorted(alone) == sorted(ALONE)
    assert sorted(alone + others) == sorted(CHECKS)
    assert others[: len(LONGEST)] == list(LONGEST)
    assert batches(("calls", "kills"), 2) == [([], 1), (["kills", "calls"], 2)]


def test_a_check_that_ends_in_an_error_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "nowhere", "crashes")
    line, _ = check("nowhere", 1.0)
    assert not line.passed
    assert "ModuleNotFoundError" in str(line)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_checks_side_by_side_each_tell_their_line() -> None:
    found = [line for line, _ in run(("calls", "certificates"), 0.1, 2)]
    assert sorted(line.number for line in found) == [4, 5]
    assert all(line.passed for line in found)

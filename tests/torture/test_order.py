"""Order of the checks, and the checks themselves at a small scale."""

from __future__ import annotations

import pytest

from tests.torture import preflight
from tests.torture.checks import ALONE, CHECKS, LONGEST, batches, check

SMALL = {
    "calls": 0.1, "certificates": 0.1, "charges": 0.1, "checkpoints": 0.1, "damaged_records": 0.01,
    "disk_errors": 0.1, "malicious": 0.1, "markers": 0.1, "networks": 0.1, "sets": 0.05,
}  # fmt: skip


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
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "scale"), SMALL.items())
def test_check_passes_at_a_small_scale(name: str, scale: float) -> None:
    if lacking := preflight.lacking([name]):
        pytest.skip(lacking[0])
    line, _ = check(name, scale)
    assert line.passed, line.detail

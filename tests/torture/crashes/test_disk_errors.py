"""Processes whose disk fails, in small, and that the check sees one that goes on."""

from __future__ import annotations

import pytest

from tests.torture.crashes import disk_errors
from tests.torture.crashes.disk_errors import faults, planned, run
from tests.torture.crashes.vfs_faulty import Kind


def test_every_call_of_the_promise_is_there() -> None:
    chosen = planned(1.0)
    for kinds in ((Kind.SYNC,), (Kind.WRITE, Kind.FULL)):
        assert {at for who, kind, at in chosen if who == "coordinator" and kind in kinds} == set(
            range(1, 151)
        )
    assert {kind for who, kind, _ in chosen if who == "site"} == set(Kind)


def test_a_failing_disk_ends_the_process() -> None:
    assert (
        faults([("coordinator", Kind.SYNC, 20), ("coordinator", Kind.FULL, 60), ("site", Kind.WRITE, 40)])
        == []
    )


@pytest.mark.slow
def test_a_process_that_goes_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_errors, "END_SECONDS", 15.0)
    chosen = [("coordinator", Kind.FULL, at) for at in (51, 101)] + [("site", Kind.WRITE, 51)]
    assert faults(chosen, planted=True)


@pytest.mark.slow
def test_many_failing_calls() -> None:
    line = run(0.1)
    assert line.passed, str(line)

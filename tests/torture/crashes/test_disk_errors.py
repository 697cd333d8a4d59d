"""Processes whose disk fails, in small, and that the check sees one that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.rig import made
from tests.torture.crashes import disk_errors
from tests.torture.crashes.disk_errors import Choice, Told, faults, planned
from tests.torture.crashes.vfs_faulty import Kind, Planted


def test_every_call_of_the_promise_is_there() -> None:
    chosen = planned(1.0)
    for kinds in ((Kind.SYNC,), (Kind.WRITE, Kind.FULL)):
        assert {one.at for one in chosen if one.who == "coordinator" and one.kind in kinds} == set(
            range(1, 151)
        )
    assert {one.kind for one in chosen if one.who == "site"} == set(Kind)


@pytest.mark.slow
def test_a_failing_disk_ends_the_process() -> None:
    chosen = (("coordinator", Kind.SYNC, 20), ("coordinator", Kind.FULL, 60), ("site", Kind.WRITE, 40))
    assert faults([Choice(*choice) for choice in chosen]) == []


def test_a_process_that_does_not_end_as_it_should_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_errors, "AFTER_SECONDS", 1.0)
    chosen = [
        Choice("coordinator", Kind.SYNC, 4, Planted.NO_EXIT),
        Choice("coordinator", Kind.FULL, 5, Planted.EXIT_CODE_0),
        Choice("site", Kind.SYNC, 4, Planted.FAILED_COMMIT_TAKEN_FOR_GOOD),
    ]
    assert faults(chosen) == [
        "coordinator, SYNC 4: the process went on",
        "coordinator, FULL 5: exit code 0, fault met",
        "site, SYNC 4: an answer to round 0 left and is not written down",
    ]


def test_what_was_published_and_is_not_on_the_disk_is_found(tmp_path: Path) -> None:
    result = Told(sealed={("a" * 64, 0)}, bundles={"a" * 64: b"release"})
    assert result.lost(made(tmp_path)) == [
        "round 0 was published and is not charged",
        "round 0 was published and is not sealed",
        "a release that was handed out is not there",
    ]

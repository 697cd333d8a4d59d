"""An analyst's submissions in a day: counted from stored rows, on a clock that may jump."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Federation, Trust
from eigenveil_common.storage.database import Row
from eigenveil_server.process import as_datetime
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import Store, open_store
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.storage.submissions import (
    DAY_MS,
    StudyLists,
    SubmissionQuota,
    summary_of,
)
from tests.server.rig import SITES, UNLIMITED
from tests.support import a_plan

QUOTA = SubmissionQuota(studies=3, bytes=1000)
PLAN = a_plan(
    trust=Trust.SECURE_AGGREGATION, spare_attempts=1, epsilon=0.5, federation=Federation(sites=SITES)
)
SUMMARY = summary_of(PLAN)


def a_row(at: int, size: int) -> Row:
    return Row(("at", "bytes"), (at, size))


def a_study(number: int, at: int, plan: bytes = b"{}", analyst: str = "ada") -> StoredStudy:
    return StoredStudy(
        digest=f"{number:064x}", name=f"s{number}", analyst=analyst, submission=str(number), plan_json=plan,
        signature=b"", micro_rho=5, expected_rounds=2, state=StudyState.RUNNING, failure="", submitted_at=at,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(tmp_path / "state.db")) as opened:
        yield opened


def add(store: Store, stored: StoredStudy, quota: SubmissionQuota = QUOTA) -> None:
    with store.writer.transaction() as change:
        study_writes.add_study(change, stored, "submitted", quota, SUMMARY)


def test_a_day_is_counted_back_from_each_submission(store: Store) -> None:
    for number, at in enumerate((0, 10, 20)):
        add(store, a_study(number, at))
    with pytest.raises(RequestError) as refused:
        add(store, a_study(3, 20 + DAY_MS // 2))
    assert refused.value.code is Code.QUOTA
    assert refused.value.status == "RESOURCE_EXHAUSTED"
    assert "max_submissions_per_day" in str(refused.value)
    assert f"{as_datetime(DAY_MS):%Y-%m-%d %H:%M}" in str(refused.value), "when it may come again"
    assert store.reader.rows("SELECT COUNT(*) FROM studies")[0][0] == 3, "what is refused is not stored"
    add(store, a_study(4, DAY_MS + 1))
    with pytest.raises(RequestError):
        add(store, a_study(5, DAY_MS + 2))


def test_bytes_count_as_studies_do(store: Store) -> None:
    rest = a_study(0, 0, b"").size
    add(store, a_study(0, 0, bytes(600 - rest)))
    with pytest.raises(RequestError, match="max_submitted_mib_per_day"):
        add(store, a_study(1, 1, bytes(401 - rest)))
    add(store, a_study(2, 1, bytes(400 - rest)))
    with pytest.raises(RequestError, match="choose fewer columns"):
        add(store, a_study(3, 10 * DAY_MS, bytes(1001 - rest)))


@pytest.mark.parametrize(
    "more",
    [
        {"site_rules_json": "x" * 1000},
        {"authorization_json": "x" * 1000},
        {"signature": bytes(1000)},
        {"name": "x" * 1000},
    ],
)
def test_all_that_is_stored_of_a_study_counts(store: Store, more: dict[str, Any]) -> None:
    """Found here: an analyst who invites a thousand sites had what each of them states stored for nothing."""
    with pytest.raises(RequestError, match="max_submitted_mib_per_day"):
        add(store, replace(a_study(0, 0), **more))
    assert store.reader.rows("SELECT COUNT(*) FROM studies")[0][0] == 0


def test_each_analyst_has_a_quota_of_their_own(store: Store) -> None:
    for number in range(6):
        add(store, a_study(number, 0, analyst="ab"[number % 2]))
    with pytest.raises(RequestError):
        add(store, a_study(6, 0, analyst="a"))


def test_a_clock_that_is_set_back_gives_no_second_day(store: Store) -> None:
    for number in range(3):
        add(store, a_study(number, 5 * DAY_MS))
    with pytest.raises(RequestError) as refused:
        add(store, a_study(3, 0))
    assert f"{as_datetime(6 * DAY_MS):%Y-%m-%d}" in str(refused.value)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3 * DAY_MS), st.integers(1, 500)), max_size=30),
    st.integers(1, 6),
    st.integers(500, 2000),
)
def test_no_day_exceeds_the_quota_and_there_is_room_at_the_stated_time(
    wishes: list[tuple[int, int]], studies: int, size: int
) -> None:
    """However the clock jumps: the times come in any order."""
    quota, taken = SubmissionQuota(studies=studies, bytes=size), list[tuple[int, int]]()

    def allowed(at: int, wanted: int) -> bool:
        rows = [a_row(*one) for one in sorted(taken) if one[0] > at - DAY_MS]
        try:
            quota.check(rows, wanted)
        except RequestError:
            free = quota._free_at(rows, wanted)
            remaining = [row for row in rows if row["at"] > free - DAY_MS]
            assert len(remaining) < studies
            assert sum(row["bytes"] for row in remaining) + wanted <= size
            return False
        return True

    for at, wanted in wishes:
        if allowed(at, wanted):
            taken.append((at, wanted))
    for start, _ in taken:
        window = [one for one in taken if start <= one[0] < start + DAY_MS]
        assert len(window) <= studies
        assert sum(one[1] for one in window) <= size


def test_lists_read_no_plan_and_agree_with_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (SUMMARY.atto_delta, SUMMARY.epsilon) == (PLAN.cost.atto_delta, 0.5)
    with store.writer.transaction() as change:
        study_writes.add_study(change, a_study(1, 1), "submitted", UNLIMITED, SUMMARY)
        study_writes.add_study(change, a_study(2, 2), "submitted", UNLIMITED, SUMMARY)
        change.execute("UPDATE studies SET plan_json = ?", (b"not read",))
    lists = StudyLists(store.reader)
    assert [one.summary for one in lists.list_after("", 9)] == [SUMMARY, SUMMARY]
    assert [one.name for one in lists.list_after(f"{1:064x}", 9)] == ["s2"]
    assert [one.name for one in lists.list_before("", 1)] == ["s2"]
    assert [one.name for one in lists.list_before(f"{2:064x}", 9)] == ["s1"]
    assert [one.name for one in lists.of_analyst("ada", StudyState)] == ["s2", "s1"]
    with pytest.raises(RequestError) as refused:
        lists.list_after("f" * 64, 1)
    assert refused.value.code is Code.NOT_FOUND

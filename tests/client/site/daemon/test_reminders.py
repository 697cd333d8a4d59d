"""Reminders of a waiting study: half of the time is gone, or a day is left; each once, and over restarts."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.reminders import DAY_SECONDS, due_moment, remind
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import Coordinator, Log, Stage, a_plan, until

PLAN = a_plan()
CAME, DAYS = 1_800_000_000, 6
ENDS = CAME + DAYS * DAY_SECONDS
HALF, LAST_DAY = CAME + DAYS * DAY_SECONDS // 2, ENDS - DAY_SECONDS


def received(stage: Stage, at: int = CAME, ends: int = ENDS) -> ReceivedPlan:
    return ReceivedPlan(
        plan=PLAN.digest, plan_json=PLAN.to_json(), signature=stage.signed(PLAN).signature,
        status=ConsentStatus.PENDING, at=at, decide_until=ends,
    )  # fmt: skip


def reminded(log: Log) -> list[dict[str, Any]]:
    named = [one for one in log.records if getattr(one, "event_name", "") == "study-still-waits"]
    return [one.fields for one in named]  # type: ignore[attr-defined]


@given(
    st.integers(1, 20 * DAY_SECONDS), st.lists(st.integers(-10, 21 * DAY_SECONDS), max_size=30).map(sorted)
)
def test_a_reminder_is_never_early_late_or_repeated(length: int, looks: list[int]) -> None:
    seen = ReceivedPlan(
        plan="",
        plan_json=b"",
        signature=b"",
        status=ConsentStatus.PENDING,
        at=CAME,
        decide_until=CAME + length,
    )
    given_at = []
    for look in looks:
        moment = due_moment(seen, CAME + length, CAME + look)
        if moment is not None:
            seen = replace(seen, reminded=moment)
            given_at.append(look)
    first = min(length // 2, length - DAY_SECONDS) if length > DAY_SECONDS else length // 2
    assert len(given_at) <= 2
    assert all(max(1, first) <= look < length for look in given_at)
    if any(max(1, first) <= look < length for look in looks):
        assert given_at


def test_each_reminder_is_given_once_and_a_restart_repeats_none(asking: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO)
    with closing(asking.store()) as store:
        store.store_pending(received(asking))
    counts = {}
    for now in (HALF - 1, HALF, HALF + 60, LAST_DAY - 1, LAST_DAY, ENDS - 1, ENDS + DAY_SECONDS):
        for _ in range(2):
            with asking.process(lambda now=now: now) as (store, worker):  # type: ignore[misc]
                remind(store, worker.consent().waiting)
        counts[now - CAME] = len(reminded(caplog))
    assert list(counts.values()) == [0, 1, 1, 1, 2, 2, 2]
    assert reminded(caplog) == 2 * [{"study": PLAN.digest[:12], "analyst": "ada"}]


def test_after_a_long_stop_one_reminder_is_given(asking: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO)
    with asking.process(lambda: ENDS - 60) as (store, _):
        store.store_pending(received(asking))
        for _ in range(3):
            remind(store, asking.worker(store).consent().waiting)
    assert len(reminded(caplog)) == 1


def test_nobody_is_reminded_without_a_time_to_decide_by(asking: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO)
    with asking.process(lambda: HALF) as (store, _):
        store.store_pending(received(asking, ends=0))
        remind(store, asking.worker(store).consent().waiting)
        remind(store, ["0" * 64])
    assert reminded(caplog) == []


def test_nobody_is_reminded_of_a_study_that_was_decided_in_between(asking: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO)
    with asking.process(lambda: HALF) as (store, _):
        store.store_pending(received(asking))
        waiting = asking.worker(store).consent().waiting
        assert waiting == {PLAN.digest}
        consent.approve(asking.config, store, store.studies.find(PLAN.digest), by="Dr. Grau")
        remind(store, waiting)
    assert reminded(caplog) == []


def test_nobody_is_reminded_where_the_rules_decide(asking: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO)
    with closing(asking.store()) as store:
        store.store_pending(received(asking))
    asking.rule(approval=Approval.AUTO)
    with asking.process(lambda: HALF) as (store, worker):
        remind(store, worker.consent().waiting)
    assert reminded(caplog) == []


async def test_a_running_daemon_reminds(asking: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO)
    with closing(asking.store()) as store:
        store.store_pending(received(asking, at=CAME - 3600, ends=CAME + 1800))
    coordinator = Coordinator(work=[pb.NextWorkResponse()])
    async with asking.serving(coordinator), asking.daemon():
        await until(lambda: reminded(caplog))
    assert len(reminded(caplog)) == 1

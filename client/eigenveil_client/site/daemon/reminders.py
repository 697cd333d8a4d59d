"""Reminders that a study waits for a person's decision: when half of the time for it is gone, and a day
before it ends. Each is an event of the log, from which `[notify]` makes a notice, and is given once: what was
given is stored first, so a crash in between loses one and repeats none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.state.received_plans import ReceivedPlan
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.log import event

LOOK_SECONDS = 60.0
DAY_SECONDS = 86_400


def due_moment(received: ReceivedPlan, deadline: int, now: int) -> int | None:
    """Return the latest reminder of a waiting plan that is due and was not given, as Unix time. After a stop
    of the daemon that is one, however many were missed."""
    moments = ((received.at + deadline) // 2, deadline - DAY_SECONDS)
    due = [one for one in moments if max(received.at, received.reminded) < one <= now < deadline]
    return max(due, default=None)


def remind(store: SiteStore, waiting: Iterable[str]) -> None:
    """Log each reminder that is due about the plans `waiting` for a person. Raises InternalError, code
    `storage`."""
    now = store.now()
    for digest in waiting:
        received = store.studies.get(digest)
        if received is None:
            continue
        plan = received.read_plan()
        deadline = received.decision_deadline(plan)
        moment = None if deadline is None else due_moment(received, deadline, now)
        if moment is not None and store.studies.note_reminder(digest, moment):
            event("study-still-waits", study=digest, analyst=plan.analyst)


async def remind_periodically(worker: SiteWorker) -> None:
    """Look for due reminders every minute, in a thread. Raises as `remind`."""
    while True:
        await asyncio.to_thread(lambda: remind(worker.store, worker.consent().waiting))
        await asyncio.sleep(LOOK_SECONDS)

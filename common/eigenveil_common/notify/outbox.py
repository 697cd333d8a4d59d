"""From a line of the log to a person: queues that nobody waits for, tried again ever more slowly.

A daemon says each change of state in one line of its log, of fields that never hold data (`eigenveil_common.
log`); what people are told is picked from those lines. So a notice can hold no more than a log, and nothing
that makes a round waits for one. A notice is told at most once: what is still queued when the process ends is
lost, and the commands that list studies remain the truth.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count as count_up
from types import MappingProxyType
from typing import Any

from eigenveil.errors import EigenveilError
from eigenveil_common import log
from eigenveil_common.doctor import Check, fail, ok
from eigenveil_common.log import places
from eigenveil_common.notify.config import Notify
from eigenveil_common.notify.delivery import Undelivered, call_webhook, reach, send_mail
from eigenveil_common.notify.message import Notice, What

MOST_QUEUED = 64  # of one way, for one recipient: nobody's full queue costs another a notice
PAUSES = (10.0, 60.0, 600.0, 3600.0)  # seconds before the next try, after which it is given up
CLOSE_SECONDS = 2.0
NAMES = frozenset(one.value for one in What)
Count = Callable[[str], None]  # of an outcome: sent, failed or dropped


@dataclass(order=True, frozen=True, slots=True, kw_only=True)
class Queued:
    """A notice that waits until `due`, by the monotonic clock; `number` is its place among equals."""

    due: float
    number: int
    tries: int = field(default=0, compare=False)
    notice: Notice = field(compare=False)
    recipient: str = field(compare=False)


class Outbox:
    """One way to people: what is put in is handed to `send` when it is due, on a thread of its own. What has
    to be tried again waits beside the others: nobody waits for what is meant for somebody else."""

    def __init__(self, kind: str, send: Callable[[Notice, str], None], count: Count) -> None:
        self._kind = kind
        self._send = send
        self._count = count
        self._waiting: list[Queued] = []  # a heap
        self._numbers = count_up()
        self._closing = False
        self._changed = threading.Condition()
        # A daemon's: the process never waits for a mail server.
        self._thread = threading.Thread(target=self._run, name=f"notify-{kind}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice, recipient: str) -> None:
        """Queue a notice; if too many wait for this recipient it is dropped, which is counted and logged."""
        with self._changed:
            full = sum(one.recipient == recipient for one in self._waiting) >= MOST_QUEUED
        if full:
            self._missed("dropped", notice, reason="queue-full")
            return
        self._push(
            Queued(due=time.monotonic(), number=next(self._numbers), notice=notice, recipient=recipient)
        )

    def close(self, seconds: float) -> None:
        """Try what is queued once more, for as long as that."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _push(self, item: Queued) -> None:
        with self._changed:
            heapq.heappush(self._waiting, item)
            self._changed.notify()

    def _next(self) -> Queued | None:
        """What is due first, once it is; when closing, at once, until nothing is left."""
        with self._changed:
            while not self._closing:
                left = self._waiting[0].due - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            return heapq.heappop(self._waiting) if self._waiting else None

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                self._deliver(item)
            except Exception as surprise:  # noqa: BLE001 - its place is logged; the next notice goes on
                at = places(surprise.__traceback__)
                self._missed("failed", item.notice, type=type(surprise).__qualname__, at=at)

    def _deliver(self, item: Queued) -> None:
        notice = item.notice
        try:
            self._send(notice, item.recipient)
        except Undelivered as problem:
            if problem.lasting or item.tries == len(PAUSES) or self._closing:
                self._missed("failed", notice, why=str(problem))
                return
            due = time.monotonic() + PAUSES[item.tries]
            self._push(replace(item, due=due, tries=item.tries + 1))
        except EigenveilError as problem:  # a file that must be mended
            self._missed("failed", notice, why=str(problem))
        else:
            self._count("sent")
            log.event("notice-sent", kind=self._kind, about=notice.what.value, study=notice.study)

    def _missed(self, outcome: str, notice: Notice, **words: object) -> None:
        self._count(outcome)
        about = {"kind": self._kind, "about": notice.what.value, "study": notice.study}
        log.event(f"notice-{outcome}", logging.WARNING, **about, **words)


class Notices(logging.Handler):
    """Picks out of the log what people are told, and has it told."""

    def __init__(self, federation: str, site: str, tell: Callable[[Notice], None]) -> None:
        super().__init__()
        self._federation = federation
        self._site = site
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        name = getattr(record, "event_name", "")
        if name not in NAMES:
            return
        said: dict[str, Any] = record.said  # type: ignore[attr-defined]  # of every event of ours
        try:
            notice = Notice(
                what=What(name),
                federation=self._federation,
                site=self._site,
                study=str(said.get("study", "")),
                analyst=str(said.get("analyst", "")),
                at=int(record.created),
            )
        except ValueError as problem:
            log.event("notice-failed", logging.WARNING, about=name, why=problem)
            return
        self._tell(notice)


@contextmanager
def notifying(
    notify: Notify,
    *,
    federation: str,
    site: str = "",
    analysts: Mapping[str, str] = MappingProxyType({}),
    count: Count,
) -> Iterator[None]:
    """Tell people, meanwhile, of what the log says; `analysts` of their own studies alone."""
    mail = Outbox("mail", partial(send_mail, notify), count) if notify.mail_host else None
    hook = (
        Outbox("webhook", lambda notice, _: call_webhook(notify, notice), count) if notify.webhook else None
    )
    outboxes = [one for one in (mail, hook) if one is not None]

    def tell(notice: Notice) -> None:
        if mail is not None:
            own = analysts.get(notice.analyst)
            for address in dict.fromkeys((*notify.to, *([own] if own else []))):
                mail.put(notice, address)
        if hook is not None:
            hook.put(notice, "")

    notices = Notices(federation, site, tell)
    if outboxes:
        log.logger.addHandler(notices)
    try:
        yield
    finally:
        log.logger.removeHandler(notices)
        for outbox in outboxes:
            outbox.close(CLOSE_SECONDS)


def check_notify(notify: Notify) -> list[Check]:
    """For `doctor`: whether the ways to people are open; none is told anything."""
    try:
        return [
            fail("notify", f"{what} cannot be used: {problem}", "see [notify]; until then nobody is told")
            if problem
            else ok("notify", f"{what} answers")
            for what, problem in reach(notify)
        ]
    except EigenveilError as problem:
        return [fail("notify", str(problem))]

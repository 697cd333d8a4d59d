"""Delivery queues from log events to people, with retry and backoff. A notice holds no more than the log, and
no round waits for one. It is sent at most once: notices still queued at exit are lost, and the commands that
list studies show the state."""

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
from eigenveil_common.log import frame_locations
from eigenveil_common.notify.config import Notify
from eigenveil_common.notify.delivery import (
    DeliveryError,
    Notice,
    NoticeKind,
    call_webhook,
    probe_servers,
    send_mail,
)

MOST_QUEUED = 64  # per channel and recipient, so that a full queue affects one recipient only
RETRY_DELAYS = (10.0, 60.0, 600.0, 3600.0)  # seconds before each retry; then the notice is dropped
CLOSE_SECONDS = 2.0
NOTICE_EVENTS = frozenset(one.value for one in NoticeKind)
OutcomeCounter = Callable[[str], None]  # called with an outcome: sent, failed or dropped


@dataclass(order=True, frozen=True, slots=True, kw_only=True)
class QueuedNotice:
    """Notice that waits until `due` on the monotonic clock; `number` orders notices of equal time."""

    due: float
    number: int
    tries: int = field(default=0, compare=False)
    notice: Notice = field(compare=False)
    recipient: str = field(compare=False)


class DeliveryQueue:
    """Queue of one channel: a thread passes each notice to `send` when due, and a retry delays no other."""

    def __init__(self, kind: str, send: Callable[[Notice, str], None], count: OutcomeCounter) -> None:
        self._kind = kind
        self._send = send
        self._count = count
        self._waiting: list[QueuedNotice] = []  # a heap
        self._numbers = count_up()
        self._closing = False
        self._changed = threading.Condition()
        # Daemon thread: process exit does not wait for a mail server.
        self._thread = threading.Thread(target=self._run, name=f"notify-{kind}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice, recipient: str) -> None:
        """Queue a notice. If too many wait for this recipient, it is dropped, counted and logged."""
        with self._changed:
            full = sum(one.recipient == recipient for one in self._waiting) >= MOST_QUEUED
        if full:
            self._record_failure("dropped", notice, reason="queue-full")
        else:
            due, number = time.monotonic(), next(self._numbers)
            self._push(QueuedNotice(due=due, number=number, notice=notice, recipient=recipient))

    def close(self, seconds: float) -> None:
        """Try the queued notices once more for at most `seconds`, and stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _push(self, item: QueuedNotice) -> None:
        with self._changed:
            heapq.heappush(self._waiting, item)
            self._changed.notify()

    def _next(self) -> QueuedNotice | None:
        """Return the next notice when it is due; when closing at once, and None at the end."""
        with self._changed:
            while not self._closing:
                remaining = self._waiting[0].due - time.monotonic() if self._waiting else None
                if remaining is not None and remaining <= 0:
                    break
                self._changed.wait(remaining)
            return heapq.heappop(self._waiting) if self._waiting else None

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                self._deliver(item)
            except Exception as unexpected:  # noqa: BLE001 - its location is logged; the queue goes on
                at = frame_locations(unexpected.__traceback__)
                self._record_failure("failed", item.notice, type=type(unexpected).__qualname__, at=at)

    def _deliver(self, item: QueuedNotice) -> None:
        notice = item.notice
        try:
            self._send(notice, item.recipient)
        except DeliveryError as problem:
            if problem.permanent or item.tries == len(RETRY_DELAYS) or self._closing:
                self._record_failure("failed", notice, why=str(problem))
                return
            self._push(replace(item, due=time.monotonic() + RETRY_DELAYS[item.tries], tries=item.tries + 1))
        except EigenveilError as problem:  # an invalid file
            self._record_failure("failed", notice, why=str(problem))
        else:
            self._count("sent")
            log.event("notice-sent", kind=self._kind, about=notice.kind.value, study=notice.study)

    def _record_failure(self, outcome: str, notice: Notice, **details: object) -> None:
        self._count(outcome)
        about = {"kind": self._kind, "about": notice.kind.value, "study": notice.study}
        log.event(f"notice-{outcome}", logging.WARNING, **about, **details)


class NoticeHandler(logging.Handler):
    """Log handler that makes notices from events and passes them to `queue`."""

    def __init__(self, federation: str, site: str, queue: Callable[[Notice], None]) -> None:
        super().__init__()
        self._federation, self._site, self._queue = federation, site, queue

    def emit(self, record: logging.LogRecord) -> None:
        name = getattr(record, "event_name", "")
        if name not in NOTICE_EVENTS:
            return
        log_fields: dict[str, Any] = record.fields  # type: ignore[attr-defined]  # set by log.event
        try:
            notice = Notice(
                kind=NoticeKind(name),
                federation=self._federation,
                site=self._site,
                study=str(log_fields.get("study", "")),
                analyst=str(log_fields.get("analyst", "")),
                at=int(record.created),
            )
        except ValueError as problem:
            log.event("notice-failed", logging.WARNING, about=name, why=problem)
            return
        self._queue(notice)


@contextmanager
def notifications(
    notify: Notify,
    *,
    federation: str,
    site: str = "",
    analysts: Mapping[str, str] = MappingProxyType({}),
    count: OutcomeCounter,
) -> Iterator[None]:
    """Send notices of log events within the block; `analysts` get those of their own studies."""
    mail = DeliveryQueue("mail", partial(send_mail, notify), count) if notify.mail_host else None
    hook = (
        DeliveryQueue("webhook", lambda notice, _: call_webhook(notify, notice), count)
        if notify.webhook
        else None
    )
    queues = [one for one in (mail, hook) if one is not None]

    def queue_notice(notice: Notice) -> None:
        if mail is not None:
            analyst_address = analysts.get(notice.analyst)
            for address in dict.fromkeys((*notify.to, *([analyst_address] if analyst_address else []))):
                mail.put(notice, address)
        if hook is not None:
            hook.put(notice, "")

    notices = NoticeHandler(federation, site, queue_notice)
    if queues:
        log.logger.addHandler(notices)
    try:
        yield
    finally:
        log.logger.removeHandler(notices)
        for one in queues:
            one.close(CLOSE_SECONDS)


def check_notify(notify: Notify) -> list[Check]:
    """Check for `doctor` that the mail server and webhook answer; nothing is sent."""
    try:
        return [
            fail("notify", f"{server} cannot be used: {problem}", "correct [notify]; no notices are sent now")
            if problem
            else ok("notify", f"{server} answers")
            for server, problem in probe_servers(notify)
        ]
    except EigenveilError as problem:
        return [fail("notify", str(problem))]

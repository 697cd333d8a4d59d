"""From a line of the log to a person: queues that nobody waits for, tried again ever more slowly.

A daemon says each change of state in one line of its log, of fields that never hold data (`eigenveil_common.
log`); what people are told is picked from those lines. So a notice can hold no more than a log, and nothing
that makes a round waits for one. A notice is told at most once: what is still queued when the process ends is
lost, and the commands that list studies remain the truth.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from eigenveil.errors import EigenveilError
from eigenveil_common import log
from eigenveil_common.doctor import Check, fail, ok
from eigenveil_common.log import places
from eigenveil_common.notify.config import Notify
from eigenveil_common.notify.delivery import Undelivered, call_webhook, reach, send_mail
from eigenveil_common.notify.message import Notice, What

MOST_QUEUED = 256  # of one way
PAUSES = (10.0, 60.0, 600.0, 3600.0)  # seconds before the next try, after which it is given up
CLOSE_SECONDS = 2.0
NAMES = frozenset(one.value for one in What)
Count = Callable[[str], None]  # of an outcome: sent, failed or dropped


class Outbox:
    """One way to people: what is put in is handed to `send` in turn, on a thread of its own."""

    def __init__(self, kind: str, send: Callable[[Notice, str], None], count: Count) -> None:
        self._kind = kind
        self._send = send
        self._count = count
        self._queue: queue.Queue[tuple[Notice, str] | None] = queue.Queue(MOST_QUEUED)
        self._closing = threading.Event()
        # A daemon's: the process never waits for a mail server.
        self._thread = threading.Thread(target=self._run, name=f"notify-{kind}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice, recipient: str) -> None:
        """Queue a notice; if too many wait already it is dropped, which is counted and logged."""
        try:
            self._queue.put_nowait((notice, recipient))
        except queue.Full:
            self._missed("dropped", notice, reason="queue-full")

    def close(self, seconds: float) -> None:
        """Try what is queued once more, for as long as that."""
        self._closing.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            notice, recipient = item
            try:
                self._deliver(notice, recipient)
            except Exception as surprise:  # noqa: BLE001 - its place is logged; the next notice goes on
                at = places(surprise.__traceback__)
                self._missed("failed", notice, type=type(surprise).__qualname__, at=at)

    def _deliver(self, notice: Notice, recipient: str) -> None:
        for pause in (*PAUSES, None):
            try:
                self._send(notice, recipient)
            except Undelivered as problem:
                last = problem.lasting or pause is None or self._closing.is_set()
                if last:
                    self._missed("failed", notice, why=str(problem))
                    return
                self._closing.wait(pause)
            except EigenveilError as problem:  # a file that must be mended
                self._missed("failed", notice, why=str(problem))
                return
            else:
                self._count("sent")
                log.event("notice-sent", kind=self._kind, about=notice.what.value, study=notice.study)
                return

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

"""Loads of records ahead of a study's first query, so that the time for its answer begins with them loaded.

A load begins once a study is accepted, never before: consent is checked before a record is read. Of a load
only that it is under way leaves the site, never how far it is: that would reveal the number of records."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from eigenveil.errors import Code, PeerError
from eigenveil.protocol.plan import Plan
from eigenveil_client.records.isolated.fork_server import SERVER
from eigenveil_client.site.engine.engine import LoadedRecords
from eigenveil_common.files import failpoint

FRESH_SECONDS = 3600.0  # for which records wait for a first query; later they are loaded again


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """Records under way, or loaded; after a failure they are loaded again for the query, which reports it."""

    records: Future[LoadedRecords]
    began: float

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.began < FRESH_SECONDS

    def close(self) -> None:
        """Release the records, now or once they are loaded."""
        if not self.records.cancel():
            self.records.add_done_callback(_close)


def _close(records: Future[LoadedRecords]) -> None:
    if not records.cancelled() and records.exception() is None:
        records.result().close()


class LoadsAhead:
    """Loads, each by `load`, in one thread of their own. `ended` is called there after each."""

    def __init__(self, load: Callable[[Plan], LoadedRecords], executor: Executor | None = None) -> None:
        self.ended: Callable[[], None] = lambda: None
        self._read = load
        self._executor = executor or ThreadPoolExecutor(1, "load")
        self._loads: dict[str, _Load] = {}
        self._begun: set[str] = set()  # each study once, as it may be unloaded for want of memory
        self._closed = False

    def may_begin(self, plan: str, room: int) -> bool:
        """True if no load of this study has begun, and there are less than `room`."""
        return plan not in self._begun and len(self._loads) < room

    def begin(self, plan: Plan) -> None:
        """Begin to load the records of an accepted study."""
        self._begun.add(plan.digest)
        future = self._executor.submit(self._load, plan)
        self._loads[plan.digest] = _Load(records=future, began=time.monotonic())
        future.add_done_callback(lambda _: self.ended())

    def _load(self, plan: Plan) -> LoadedRecords:
        failpoint("loading-ahead")
        return self._read(plan)

    @property
    def plans(self) -> list[str]:
        """The studies whose records are loaded or being loaded, oldest first."""
        return list(self._loads)

    @property
    def under_way(self) -> frozenset[str]:
        """The studies whose records are being loaded."""
        return frozenset(plan for plan, load in list(self._loads.items()) if not load.records.done())

    def take(self, plan: str) -> LoadedRecords | None:
        """Return the records of a study, after the end of their load; None if there are none, or they have
        waited for too long."""
        self._begun.add(plan)
        load = self._loads.pop(plan, None)
        if load is None:
            return None
        if not load.is_fresh:
            load.close()
            return None
        with suppress(Exception):  # whatever it is, the next load raises it
            return load.records.result()
        return None

    def forget(self, plan: str) -> None:
        """Release the records of a study that were not taken."""
        load = self._loads.pop(plan, None)
        if load is not None:
            load.close()

    def retain(self, plans: Container[str]) -> None:
        """Release the records of all studies but these, and those that have waited for too long."""
        for plan, load in list(self._loads.items()):
            if plan not in plans or not load.is_fresh:
                self.forget(plan)
        self._begun = {plan for plan in self._begun if plan in plans}

    def require_open(self) -> None:
        """Raise PeerError, code `unreachable`, after `close`."""
        if self._closed:
            raise PeerError(
                Code.UNREACHABLE, "this daemon stops; the records are loaded after its next start"
            )

    def close(self) -> None:
        """End all loads, for good, and readers; another thread may wait for one. May be repeated."""
        self._closed = True
        self.retain(())
        self._executor.shutdown(wait=False, cancel_futures=True)
        SERVER.close()

"""The calls in progress: how many of whom, on which connections, and how to end one from outside.

A call is in progress until its task ends, which is when its caller has taken the reply (see `front.replies`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil_common import log

MOST_CALLS_OF_ONE = 64  # in progress at a time, so that one caller cannot take all of them
WATCHES_SHARE = 4  # one caller has at most this part of all watches, and may have one in any case


@dataclass(slots=True, kw_only=True)
class InProgress:
    """One call. `check` raises if its caller may not go on; `refused` is why it was ended from outside;
    `answered` that its handler has returned."""

    caller: str
    peer: str
    number: int
    check: Callable[[], object]
    task: asyncio.Task[object]
    refused: PeerError | None = None
    answered: bool = False


class Calls:
    """Every call that was admitted and has not ended. To be used on the event loop."""

    def __init__(self) -> None:
        self._calls: dict[int, InProgress] = {}
        self._of: defaultdict[str, dict[int, InProgress]] = defaultdict(dict)
        self.begun = 0

    @contextmanager
    def one(self, caller: str, peer: str, check: Callable[[], object]) -> Iterator[None]:
        """Count a call of `caller` from the connection `peer`, from its admission to the end of its task. The
        block is what can be ended from outside.

        Raises:
            RequestError: code `not-ready`, too many calls of this caller.
            PeerError: its caller was shut out in the meantime (see `sweep`).
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call runs in a task")
        if len(self._of.get(caller, ())) >= MOST_CALLS_OF_ONE:
            raise RequestError(
                Code.NOT_READY,
                f"{MOST_CALLS_OF_ONE} calls of yours are in progress or not read yet; try again later",
            )
        self.begun += 1
        call = InProgress(caller=caller, peer=peer, number=self.begun, check=check, task=task)
        self._calls[call.number] = self._of[caller][call.number] = call
        task.add_done_callback(partial(self._ended, call))
        try:
            yield
        except asyncio.CancelledError:
            if call.refused is None:
                raise
            task.uncancel()
            raise call.refused from None
        finally:
            call.answered = True

    def _ended(self, call: InProgress, task: asyncio.Task[object]) -> None:
        del self._calls[call.number], self._of[call.caller][call.number]
        if not self._of[call.caller]:
            del self._of[call.caller]

    def sweep(self) -> None:
        """End the calls whose callers may not go on: denied, replaced or expired since they began.

        One look for each connection: whatever shuts out one of its calls shuts out all.
        """
        verdicts: dict[tuple[str, str], PeerError | None] = {}
        for call in [one for one in self._calls.values() if not one.answered]:
            key = (call.caller, call.peer)
            if key not in verdicts:
                verdicts[key] = _verdict(call)
            refused = verdicts[key]
            if refused is not None and call.refused is None:
                call.refused = refused
                call.task.cancel()

    def elsewhere(self, caller: str, peer: str, *, since: int = 0) -> bool:
        """Whether `caller` has a call in progress on another connection than `peer`, begun after `since`."""
        mine = self._of.get(caller, {}).values()
        return any(call.peer != peer and call.number > since and not call.answered for call in mine)


class Watches:
    """The watches in progress, `most` in all. To be used on the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[str] = Counter()

    def total(self) -> int:
        """How many there are at this moment."""
        return self._of.total()

    @contextmanager
    def one(self, caller: str) -> Iterator[None]:
        """Count a watch of `caller` until it ends.

        Raises:
            RequestError: code `not-ready`, too many in all or of this caller.
        """
        if self._of.total() >= self._most:
            raise RequestError(Code.NOT_READY, "too many studies are being watched; try again later")
        share = max(1, self._most // WATCHES_SHARE)
        if self._of[caller] >= share:
            raise RequestError(
                Code.NOT_READY, f"{share} studies are being watched by you; end one of these watches first"
            )
        self._of[caller] += 1
        try:
            yield
        finally:
            self._of[caller] -= 1


def _verdict(call: InProgress) -> PeerError | None:
    try:
        call.check()
    except PeerError as problem:
        log.event("call-ended", peer=call.caller, code=problem.code.value, why=str(problem))
        return problem
    return None

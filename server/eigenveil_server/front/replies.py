"""Replies that their callers have not taken yet: how many at a time, and how many bytes of them.

A handler has returned long before its reply is gone: gRPC holds it until the caller grants flow-control
window for all of it. Its task ends then, or when the caller takes the call back, or the gateway ends the
connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from eigenveil.errors import Code, RequestError

# Reads of up to 4 MiB each. Of one caller so many at a time, the others wait for their turn. `ListStudies`
# has turns of its own (`rpc.study_list`): calls that waited here could not share an answer there.
READS = frozenset({"GetDictionary", "GetRelease", "GetRound", "ListSites"})
READS_AT_ONCE = 2
MOST_BYTES = 8 * 2**20  # of one caller; memory holds each reply up to three times


@dataclass(slots=True)
class _Caller:
    """What one caller has been sent and not taken. `users` are the calls that have to do with it."""

    turns: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, READS_AT_ONCE))
    size: int = 0
    users: int = 0


class Replies:
    """Those of one listener. To be used on the event loop, in the task of a call: what a call is given is
    taken back when that task ends."""

    def __init__(self) -> None:
        self._of: dict[str, _Caller] = {}

    async def turn(self, method: str, caller: str) -> None:
        """Wait until `caller` may read one more, if the method is one of `READS`."""
        if method in READS:
            held = self._use(caller)
            await held.turns.acquire()
            _running().add_done_callback(lambda task: held.turns.release())

    def owe(self, caller: str, size: int) -> None:
        """Note a reply of `size` bytes that is about to be sent.

        Raises:
            RequestError: code `not-ready`, too many bytes were not taken.
        """
        held = self._use(caller)
        if held.size and held.size + size > MOST_BYTES:
            raise RequestError(
                Code.NOT_READY,
                f"{held.size // 1024} KiB of answers to you were not read yet; read them, then ask again",
            )
        held.size += size

        def taken(task: object) -> None:
            held.size -= size

        _running().add_done_callback(taken)

    def _use(self, caller: str) -> _Caller:
        held = self._of.setdefault(caller, _Caller())
        held.users += 1
        _running().add_done_callback(lambda task: self._left(caller, held))
        return held

    def _left(self, caller: str, held: _Caller) -> None:
        held.users -= 1
        if not held.users:
            del self._of[caller]


def _running() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call runs in a task")
    return task

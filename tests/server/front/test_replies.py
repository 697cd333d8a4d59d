"""Replies on their way: how many reads of one caller at a time, how many bytes, until when a call counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Role
from eigenveil_server.front import http2, message_quota
from eigenveil_server.front.message_quota import MOST_REPLY_BYTES, READS_AT_ONCE, UnreadReplies
from eigenveil_server.rpc import callers
from eigenveil_server.rpc.callers import Calls
from tests.server.front.test_gateway import connected, received
from tests.server.rig import made, serving
from tests.support import a_hello
from tests.torture.front.frames import PREFACE, call, message, settings


class Tasks:
    """Tasks that do something and then stay, as those of replies that nobody takes."""

    def __init__(self) -> None:
        self.all: list[asyncio.Task[None]] = []
        self.begun = 0

    async def start(self, act: Callable[[], Coroutine[Any, Any, object]]) -> asyncio.Task[None]:
        async def stay() -> None:
            await act()
            self.begun += 1
            await asyncio.Event().wait()

        self.all.append(asyncio.create_task(stay()))
        await asyncio.sleep(0)
        return self.all[-1]

    async def taken(self, *tasks: asyncio.Task[None]) -> None:
        for task in tasks or tuple(self.all):
            task.cancel()
        await asyncio.gather(*(tasks or self.all), return_exceptions=True)
        await asyncio.sleep(0)


async def test_of_one_caller_few_read_at_a_time_until_their_replies_are_taken() -> None:
    here, tasks = UnreadReplies(), Tasks()
    for _ in range(2 * READS_AT_ONCE):
        await tasks.start(partial(here.wait_to_read, "GetDictionary", "eve"))
    assert tasks.begun == READS_AT_ONCE
    await tasks.start(partial(here.wait_to_read, "Hello", "eve"))
    await tasks.start(partial(here.wait_to_read, "GetRelease", "ada"))
    await tasks.start(partial(here.wait_to_read, "GetDictionary", "ada"))
    assert tasks.begun == READS_AT_ONCE + 3, "what is small and what is another's need not wait"
    await tasks.taken(tasks.all[0], tasks.all[READS_AT_ONCE])  # one that reads, and one that waits
    assert tasks.begun == READS_AT_ONCE + 4
    await tasks.taken()
    assert not here._of


async def test_bytes_that_were_not_taken_are_bounded() -> None:
    here, tasks = UnreadReplies(), Tasks()

    async def add_unread(caller: str, size: int) -> None:
        here.add_unread(caller, size)

    first = await tasks.start(partial(add_unread, "eve", MOST_REPLY_BYTES))
    refused = await tasks.start(partial(add_unread, "eve", 1))
    with pytest.raises(RequestError, match="were not read yet") as caught:
        await asyncio.wait_for(refused, 30)
    assert caught.value.code is Code.NOT_READY
    await tasks.start(partial(add_unread, "ada", 2 * MOST_REPLY_BYTES))
    assert tasks.begun == 2, "one reply alone is always sent"
    await tasks.taken(first)
    await tasks.start(partial(add_unread, "eve", MOST_REPLY_BYTES))
    assert tasks.begun == 3
    await tasks.taken()
    assert not here._of


async def test_a_call_that_ends_takes_nothing_from_the_limits_of_other_calls_of_its_caller() -> None:
    here, tasks = UnreadReplies(), Tasks()

    async def add_unread(size: int) -> None:
        here.add_unread("eve", size)

    for _ in range(READS_AT_ONCE):
        await tasks.start(partial(here.wait_to_read, "GetDictionary", "eve"))
    await tasks.start(partial(add_unread, MOST_REPLY_BYTES - 1))
    await tasks.taken(await tasks.start(partial(add_unread, 1)))
    await tasks.start(partial(here.wait_to_read, "GetDictionary", "eve"))
    assert tasks.begun == READS_AT_ONCE + 2, "its turn has not come"
    with pytest.raises(RequestError, match="were not read yet"):
        await asyncio.wait_for(await tasks.start(partial(add_unread, 2)), 30)
    await tasks.taken()
    assert not here._of


async def test_a_call_counts_until_its_reply_is_taken_and_is_ended_from_outside_only_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "MAX_CALLS_PER_CALLER", 2)
    here, tasks, denied = Calls(), Tasks(), False

    def check() -> None:
        if denied:
            raise PeerError(Code.IDENTITY, "denied")

    async def call() -> None:
        with here.one("eve", "[::1]:1", check):
            await asyncio.sleep(0)

    for _ in range(2):
        await tasks.start(call)
    await asyncio.sleep(0.01)
    assert tasks.begun == 2
    assert not here.has_call_elsewhere("eve", "another"), "nothing of it is in progress"
    with pytest.raises(RequestError, match="not read yet"):
        await asyncio.wait_for(await tasks.start(call), 30)
    denied = True
    here.sweep()
    await asyncio.sleep(0)
    assert [task.done() for task in tasks.all] == [False, False, True]
    denied = False
    await tasks.taken(tasks.all[0])
    await tasks.start(call)
    await asyncio.sleep(0.01)
    assert tasks.begun == 3
    await tasks.taken()
    assert not here._calls
    assert not here._of


async def test_what_a_caller_does_not_take_counts_against_its_next_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_quota, "MOST_REPLY_BYTES", 1)
    monkeypatch.setattr(http2, "STUCK_SECONDS", 1.5)
    window = 4  # INITIAL_WINDOW_SIZE
    greeting = message(a_hello().SerializeToString())
    text = PREFACE + settings((window, 0)) + call(1, "Hello", greeting) + call(3, "Hello", greeting)

    async with serving(made(tmp_path / "c")) as rig:
        eve = await rig.credentials(Role.ANALYST, "eve")
        refused = await received(await connected(rig, eve, tmp_path, text))
    assert b"answers to you were not read yet" in refused

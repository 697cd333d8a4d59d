"""Handshakes: whose begins next, and how many are in progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import pytest

from eigenveil_server.front import handshake_limiter
from eigenveil_server.front.known_networks import KnownNetworks
from tests.torture.programs.virtual import VirtualLoop

LETTERS = "abcdefghij"


class Crowd:
    """Strangers, named by a letter for their address and a number; who has begun, and who was ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = VirtualLoop(0)
        monkeypatch.setattr(time, "monotonic", self.loop.time)
        self.begun, self.ended = list[str](), list[str]()
        self.known = KnownNetworks()
        self.turns = handshake_limiter.HandshakeLimiter[str](self.ended.append, self.known)

    def play(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.loop.run_until_complete(scenario())
        self.loop.close()

    def come(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._come(name)) for name in names]

    async def _come(self, name: str) -> None:
        await self.turns.wait(name, name[0])
        self.begun.append(name)

    def leave(self, *names: str) -> None:
        for name in names:
            self.turns.leave(name, name[0])


def test_of_one_address_the_newest_and_the_oldest_begin_by_turns_and_none_waits_for_those_who_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake_limiter, "HANDSHAKES", 1.5)
    monkeypatch.setattr(handshake_limiter, "HANDSHAKES_A_SECOND", 20.0)
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        coming = crowd.come("a1", "a2", "a3", "a4", "a5", "a6", "b1")
        await asyncio.sleep(0.001)
        assert crowd.begun == ["a6", "b1", "a1"]
        crowd.leave("a5")
        coming[2].cancel()
        crowd.leave("a3")
        await asyncio.sleep(0.2)
        assert crowd.begun[3:] == ["a4", "a2"]
        crowd.leave(*crowd.begun)
        coming[4].cancel()
        await asyncio.sleep(0.3)
        crowd.turns.forget()
        assert not crowd.turns._addresses

    crowd.play(scenario)


class Comers:
    """Ten addresses that always have one waiting; `end` is what becomes of each handshake that began."""

    def __init__(self, crowd: Crowd, end: Callable[[str, str], None]) -> None:
        self.crowd, self._end, self._seen, self._passed = crowd, end, 0, 0
        self.tasks = crowd.come(*(f"{letter}0" for letter in LETTERS))

    def _come_again(self) -> None:
        came, self._seen = self.crowd.begun[self._seen :], len(self.crowd.begun)
        for name in came:
            if name[0] in LETTERS:
                self._end(name, name[0])
                self.tasks += self.crowd.come(f"{name}+")

    async def passes(self, count: int) -> None:
        for _ in range(count):
            self._passed += 1
            await asyncio.sleep(0 if self._passed % 50 else 0.001)  # time goes on, now and then
            self._come_again()

    async def until_begun(self, name: str) -> int:
        before = len(self.crowd.begun)
        self.tasks += self.crowd.come(name)
        while name not in self.crowd.begun:
            await self.passes(1)
        return self.crowd.begun.index(name) + 1 - before

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("good", [False, True])
def test_no_crowd_of_addresses_delays_the_turn_of_another(
    monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        comers = Comers(crowd, crowd.turns.succeeded if good else crowd.turns.leave)
        for name in ("w1", "x1"):
            assert await comers.until_begun(name) <= 15, "a newcomer waits for about one turn of each"
        await comers.passes(200)
        latest = [name[0] for name in crowd.begun[-20:]]
        assert all(latest.count(letter) == 2 for letter in LETTERS), "by turns"
        await comers.leave()

    crowd.play(scenario)


def test_a_known_address_does_not_wait_for_failing_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_limiter, "HANDSHAKES", 10_000.0)
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        comers = Comers(crowd, crowd.turns.leave)
        for number in range(20):
            await comers.passes(40)
            assert number == 0 or await comers.until_begun(f"w{number}") <= 3
            crowd.turns.succeeded(f"w{number}", "w")
        await comers.until_begun("w20")
        crowd.leave("w20")
        assert await comers.until_begun("w21") <= 3, "one failure is not what others have by the dozen"
        for number in range(22, 122):
            crowd.leave(f"w{number - 1}")
            await comers.until_begun(f"w{number}")
        crowd.turns.succeeded("w121", "w")
        assert await comers.until_begun("w122") <= 3, "a good one makes up for those that failed"
        await comers.leave()

    crowd.play(scenario)


def test_a_known_network_waits_for_one_stranger_and_for_one_turn_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever failed, or is still in progress, behind its own address; two may begin before it is seen."""
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        crowd.known.record("k")
        comers = Comers(crowd, crowd.turns.succeeded)
        for number in range(20):
            assert await comers.until_begun(f"k{number}") <= 4
            if number % 2:
                crowd.leave(f"k{number}")  # it failed
        for letter in LETTERS:
            crowd.known.record(letter)
        for number in range(20, 30):
            assert await comers.until_begun(f"k{number}") <= 3 + len(LETTERS)
        await comers.leave()

    crowd.play(scenario)


def test_one_of_four_handshakes_is_a_strangers_however_many_known_networks_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One certificate may come from many addresses, which are then known networks."""
    monkeypatch.setattr(handshake_limiter, "HANDSHAKES", 10_000.0)
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        for letter in LETTERS:
            crowd.known.record(letter)
        comers = Comers(crowd, crowd.turns.succeeded)
        for number in range(20):
            assert await comers.until_begun(f"w{number}") <= 6
        for number in range(20, 60):
            comers.tasks += crowd.come(f"w{number}")
        before = len(crowd.begun)
        await comers.passes(60)
        latest = [name[0] for name in crowd.begun[before : before + 28]]
        assert latest.count("w") == 7
        await comers.leave()

    crowd.play(scenario)


def test_known_networks_and_strangers_have_handshakes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_limiter, "MOST_HANDSHAKES", 2)
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        crowd.known.record("k")
        crowd.come("a1", "b1", "c1")
        await asyncio.sleep(0.01)
        assert crowd.begun == ["a1", "b1"]
        crowd.come("k1", "k2", "k3")
        await asyncio.sleep(0.01)
        assert (sorted(crowd.begun[2:]), crowd.ended) == (["k1", "k3"], [])
        await asyncio.sleep(0.6)
        assert crowd.begun[4:] == ["c1", "k2"]
        assert sorted(crowd.ended) == ["a1", "k3"], "each makes room for its own kind"

    crowd.play(scenario)


def test_the_address_with_the_fewest_in_progress_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        crowd.come("a1", "a2")
        await asyncio.sleep(0.01)
        crowd.come("b1")
        await asyncio.sleep(0.01)
        crowd.turns.succeeded("b1", "b")
        crowd.come("a3", "b2")
        await asyncio.sleep(0.01)
        assert crowd.begun[3:] == ["b2", "a3"]

    crowd.play(scenario)


def test_slow_handshakes_make_room_first_those_of_the_address_with_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake_limiter, "MOST_HANDSHAKES", 4)
    crowd = Crowd(monkeypatch)

    async def scenario() -> None:
        crowd.come("b1")
        await asyncio.sleep(0.01)
        crowd.come("a1", "a2", "a3", "a4", "a5")
        await asyncio.sleep(0.01)
        assert len(crowd.begun) == 4
        crowd.come("c1")
        await asyncio.sleep(0.4)
        assert (len(crowd.begun), crowd.ended) == (4, []), "an honest one takes a while"
        await asyncio.sleep(0.11)
        assert crowd.begun[4] == "c1", "the address with the fewest in progress is next"
        assert crowd.ended[0] == crowd.begun[1], "not the oldest, which is another address's only one"
        for _ in range(2):
            await asyncio.sleep(0.6)
        assert sorted(crowd.begun) == ["a1", "a2", "a3", "a4", "a5", "b1", "c1"]
        assert len(crowd.ended) == 3, "nobody makes room for nobody"

    crowd.play(scenario)


def test_an_address_is_not_forgotten_before_its_allowance_is_full_again() -> None:
    """Forgotten with each look of the watchdog, it would have all of its handshakes anew."""
    with mock.patch.object(time, "monotonic") as now:
        now.return_value = 0.0
        here = handshake_limiter.HandshakeLimiter[str](mock.Mock(), KnownNetworks())
        here._addresses["crowd"] = crowd = handshake_limiter._AddressQueue[str](last=0)
        while crowd.allowance.spend(1):
            pass
        here.forget()
        assert "crowd" in here._addresses
        now.return_value += 1 + handshake_limiter.HANDSHAKES / handshake_limiter.HANDSHAKES_A_SECOND
        here.forget()
        assert not here._addresses

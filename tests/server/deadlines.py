"""Rounds whose deadline passes, and releases whose tick comes, when a test says so: nobody is late on a slow
machine."""

from __future__ import annotations

import threading
from asyncio import sleep, to_thread
from collections.abc import Callable

import pytest

from eigenveil_server.rounds import sealing
from eigenveil_server.rounds.round import Round
from tests.server.rig import DEADLINE

Place = tuple[int, int]  # a round and an attempt at it, which is 0 where there is none


def pass_when(monkeypatch: pytest.MonkeyPatch, over: Callable[[Round], bool]) -> None:
    """A round is waited for until this is so, whatever time that takes."""
    real = Round.complete

    async def complete(self: Round, seconds: float) -> bool:
        if seconds != DEADLINE:  # some other wait
            return await real(self, seconds)
        while not (self.ready.is_set() or over(self)):
            await sleep(0.005)
        return self.ready.is_set()

    monkeypatch.setattr(Round, "complete", complete)


def pass_without(monkeypatch: pytest.MonkeyPatch, is_idle: Callable[[str, Place], bool]) -> None:
    """Until everybody has said what is wanted, but those who are `quiet_site`."""

    def over(opened: Round) -> bool:
        wanted = [site for site in opened.absent() if opened.awaits(site)]
        return all(is_idle(site, (opened.round_query.round, opened.number_for(site))) for site in wanted)

    pass_when(monkeypatch, over)


class Tick:
    """Holds every release before its tick, drawn and not durable, until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._due, self.go = threading.Event(), threading.Event()
        monkeypatch.setattr(sealing, "wait_for_tick", self._wait)

    def _wait(self) -> None:
        self._due.set()
        assert self.go.wait(60)

    async def due(self) -> None:
        assert await to_thread(self._due.wait, 60)

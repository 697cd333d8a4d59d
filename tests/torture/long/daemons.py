"""Daemons that are killed, or whose disk is full or slow, at moments drawn from a seed, and start again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.torture.crashes.armed import KILLED, Command, Kill
from tests.torture.crashes.forked import ANALYST, COORDINATOR, OPERATOR, PROGRAMS, Federation
from tests.torture.long.disks import Disk, Prepared
from tests.torture.long.growth import Lives, sample

GLANCE = 0.05  # seconds
FULL_SECONDS, AFTER_SECONDS = 20.0, 1.0  # a disk stays full until its daemon has ended, and a while longer
SLOW_SECONDS = 3.0
MOST_PAUSE = 1.0  # between a death and the next start


class Kind(Enum):
    KILL = "kill"
    FULL = "full disk"
    SLOW = "slow disk"


class Disturbance(NamedTuple):
    """An event of `who`, `delay` seconds after study `study` was submitted."""

    study: int
    delay: float
    who: str
    kind: Kind


@dataclass(slots=True)
class Daemons(Federation):
    """All daemons of a federation, and what happened to them. `deaths` are those that were meant."""

    faulty: Callable[[], object] | None = None
    lives: Lives = field(default_factory=Lives)
    happened: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    serials: Counter[str] = field(default_factory=Counter)
    freed: dict[str, float] = field(default_factory=dict)  # when a full disk had room again
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def disk(self, name: str) -> Disk:
        return Disk(self.folder / name)

    def start(self, name: str, *arguments: str, kill: Kill | None = None) -> Command:
        """Start a command, with the disk of this daemon under it."""
        self.serial += 1
        command = Command(
            program=PROGRAMS.get(name, "eigenveil-site"),
            arguments=arguments or ("serve", "--config", self.config(name)),
            out=self.folder / f"{name}-{self.serial}.out", log=self.folder / f"{name}.log", kill=kill,
            renews=False, planted=Prepared(disk=self.disk(name), planted=self.faulty),
        )  # fmt: skip
        self.processes[name] = command.start()
        return command

    async def keep(self, name: str) -> None:
        """Start a daemon again whenever it has ended; an end that nothing explains is a fault."""
        while True:
            code = await self.ended(name)
            freed = self.freed.get(name, -AFTER_SECONDS)
            full = self.disk(name).full.exists() or time.monotonic() < freed + AFTER_SECONDS
            if code != KILLED and not (code and full):
                self.failed.append(f"{name} ended with {code}: {self.log(name)[-300:]}")
                return
            self.happened["deaths by a full disk"] += code != KILLED
            await asyncio.sleep(self.chance.uniform(0, MOST_PAUSE))
            self.serials[name] += 1
            self.start(name)

    def look(self, studies: int) -> None:
        """Sample every daemon that lives."""
        for name, process in self.processes.items():
            if name not in (OPERATOR, ANALYST) and process.pid is not None:
                with suppress(OSError, IndexError):  # it ends
                    self.lives.add(name, self.serials[name], sample(process.pid, studies))

    async def disturb(self, one: Disturbance) -> None:
        await asyncio.sleep(one.delay)
        match one.kind:
            case Kind.KILL:
                await self._kill(one.who)
            case Kind.FULL:
                await self._fill(one.who)
            case Kind.SLOW:
                await self._slow_down(one.who)
        self.happened[f"{one.kind.value} {'coordinator' if one.who == COORDINATOR else 'site'}"] += 1

    async def _kill(self, name: str) -> None:
        process = self.processes[name]
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)

    async def _fill(self, name: str) -> None:
        """Fill a disk until its daemon has ended, which it does at its next write."""
        disk, serial = self.disk(name), self.serials[name]
        disk.full.touch()
        try:
            async with asyncio.timeout(FULL_SECONDS):
                while self.serials[name] == serial:
                    await asyncio.sleep(GLANCE)
            await asyncio.sleep(AFTER_SECONDS)
        except TimeoutError:
            self.failed.append(f"{name} went on for {FULL_SECONDS:.0f} s on a full disk")
        finally:
            self.freed[name] = time.monotonic()
            disk.full.unlink(missing_ok=True)

    async def _slow_down(self, name: str) -> None:
        slow = self.disk(name).slow
        slow.touch()
        try:
            await asyncio.sleep(SLOW_SECONDS)
        finally:
            slow.unlink(missing_ok=True)


def disturbances(
    names: tuple[str, ...], studies: int, counts: Mapping[tuple[str, Kind], int], seed: int, longest: float
) -> dict[int, list[Disturbance]]:
    """By the study: `counts` of each kind for the coordinator and for sites. The coordinator dies in the
    first half alone, so that its growth over the second is that of one process. No disk is full in the last
    tenth: its daemon ends at the write of a later study."""
    chance, found = random.Random(seed), dict[int, list[Disturbance]]()
    for (role, kind), count in counts.items():
        for _ in range(count):
            dies = role == COORDINATOR and kind is not Kind.SLOW
            tenths = 5 if dies else 9 if kind is Kind.FULL else 10
            study = chance.randrange(tenths * studies // 10)
            who = COORDINATOR if role == COORDINATOR else chance.choice(names)
            found.setdefault(study, []).append(Disturbance(study, chance.uniform(0, longest), who, kind))
    return found

"""300 studies one after another and 30 side by side over 30 daemons, whose processes are killed and whose
disks are full or slow at moments drawn from a seed.

In the end each study has ended as it states, every release verifies, the ledger of each site is what the
coordinator asked of it, and nothing is charged twice (`tests.torture.model`, `tests.torture.long.books`).
Over the second half no daemon grows: memory, open files, threads (`tests.torture.long.growth`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection import channel
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.rig import study_toml
from tests.torture.crashes.armed import SHORT_PAUSE
from tests.torture.crashes.forked import COORDINATOR
from tests.torture.crashes.kills import stubborn
from tests.torture.long.books import account, unsettled
from tests.torture.long.daemons import Daemons, Disturbance, Kind, disturbances
from tests.torture.long.growth import verdicts
from tests.torture.model import Witness, read

STUDIES, AT_ONCE, SITES = 300, 30, 30
LOOK_EVERY = 10  # studies
DEADLINE, QUORUM = 60.0, 0.8  # seconds of a round; share of the sites without which there is no release
LONGEST = 1.5  # seconds until a disturbance, about a study
SETTLE_SECONDS = 60.0
COUNTS = {
    ("site", Kind.KILL): 60, (COORDINATOR, Kind.KILL): 10, ("site", Kind.FULL): 8,
    (COORDINATOR, Kind.FULL): 3, ("site", Kind.SLOW): 10, (COORDINATOR, Kind.SLOW): 10,
}  # fmt: skip
LIMITS = (
    "max_studies_per_analyst = 1000\nmax_submissions_per_day = 10000\n"
    "max_submitted_mib_per_day = 1000\nmax_share_per_analyst = 1.0\nmax_watches = 64\n"
)


def two_rounds(sites: tuple[str, ...]) -> str:
    """A study that counts records and asks for one matrix."""
    whole = study_toml(
        sites=sites, components=1, deadline_seconds=DEADLINE, quorum=round(QUORUM * len(sites))
    )
    fixed = whole.replace("[records]", "[records]\ncentring = false")
    return fixed.replace("delta = 1e-6", 'delta = 1e-6\nradius = "none"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Sites, studies one after another and side by side, and how often which daemons are disturbed."""

    sites: int
    one_by_one: int
    at_once: int
    counts: Mapping[tuple[str, Kind], int]

    @classmethod
    def scaled(cls, scale: float) -> Size:
        """Return the full size at scale 1."""
        return cls(
            sites=max(3, round(SITES * min(1.0, scale))), one_by_one=max(10, round(STUDIES * scale)),
            at_once=max(3, round(AT_ONCE * scale)),
            counts={what: max(1, round(count * scale)) for what, count in COUNTS.items()},
        )  # fmt: skip


class LongRun:
    """One federation, and what its witness saw."""

    def __init__(self, here: Daemons, due: dict[int, list[Disturbance]]) -> None:
        self.here, self.due = here, due
        self.witness = Witness()
        self.ended = 0
        self.events: list[asyncio.Task[None]] = []
        self.toml = two_rounds(here.names)

    async def study(self, number: int) -> None:
        """Submit a study and watch it to its end, whichever that is."""
        async with Analyst(self.here.analyst) as analyst:
            plan, _ = await stubborn(lambda: analyst.submit(self.toml, f"study-{number}"))
            events = [event async for event in analyst.watch(bytes.fromhex(plan.digest))]
            if events[-1].state == pb.STUDY_STATE_RELEASED:
                await stubborn(lambda: analyst.release(bytes.fromhex(plan.digest)))
        self.ended += 1

    async def disturbed(self, number: int) -> None:
        """One study, and what happens from its submission on. The next does not wait for that: a daemon whose
        disk is full ends at its next write."""
        self.begin(number)
        await self.study(number)
        self.here.look(self.ended)
        if self.ended % LOOK_EVERY == 0:
            self.look()

    def begin(self, number: int) -> None:
        """Begin what is due from this study on."""
        self.events += [asyncio.create_task(self.here.disturb(one)) for one in self.due.get(number, ())]

    def look(self) -> None:
        self.witness.look(read(self.here.books, self.here.sites))

    async def studies(self, one_by_one: int, at_once: int) -> None:
        """Half of those one by one, those at once, and the other half."""
        for number in range(one_by_one // 2):
            await self.disturbed(number)
        self.begin(one_by_one)
        await asyncio.gather(*(self.study(one_by_one + number) for number in range(at_once)))
        self.look()
        for number in range(one_by_one // 2, one_by_one):
            await self.disturbed(number)
        await asyncio.gather(*self.events)

    async def settled(self) -> None:
        """Wait until every site knows the end of every study."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while any(map(unsettled, self.here.sites.values())):
                    await asyncio.sleep(0.5)


async def set_up(here: Daemons) -> None:
    """Make the federation, with limits for many studies, and start all daemons."""
    await here.set_up_coordinator()
    await asyncio.gather(*(here.make_site(name, seed) for seed, name in enumerate(here.names)))
    joins = {name: await here.join(name) for name in here.names}
    await asyncio.gather(*(here.enrol(name, join) for name, join in joins.items()))
    await here.enrol_analyst()
    here.stop((COORDINATOR,))
    config = Path(here.config(COORDINATOR))
    config.write_text(LIMITS + config.read_text())
    everybody = (COORDINATOR, *here.names)
    commands = {name: here.start(name) for name in everybody}
    for name, command in commands.items():
        assert await here.serves(command, name), here.log(name)


async def watched(run: LongRun, one_by_one: int, at_once: int) -> None:
    """Run all studies; a daemon that ends for no reason ends it."""
    keepers = [asyncio.create_task(run.here.keep(name)) for name in (COORDINATOR, *run.here.names)]
    work = asyncio.create_task(run.studies(one_by_one, at_once))
    try:
        await asyncio.wait((work, *keepers), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            await run.settled()
    finally:
        for task in (work, *keepers):
            task.cancel()
        await asyncio.gather(work, *keepers, return_exceptions=True)


async def long_run(
    folder: Path, size: Size, database: str = "", faulty: Callable[[], object] | None = None
) -> tuple[list[str], str]:
    """The whole check; `database` is the coordinator's, if not a file, and `faulty` a planted fault."""
    names = tuple(f"site-{number:02}" for number in range(size.sites))
    here = Daemons(folder, names=names, database=database, faulty=faulty)
    run = LongRun(here, disturbances(names, size.one_by_one + 1, size.counts, 1, LONGEST))
    with mock.patch.object(channel, "MAX_BACKOFF_SECONDS", SHORT_PAUSE):
        try:
            await set_up(here)
            began = time.monotonic()
            await watched(run, size.one_by_one, size.at_once)
            seconds = time.monotonic() - began
        finally:
            here.stop()
    return judged(run, size.one_by_one + size.at_once, seconds)


def judged(run: LongRun, due: int, seconds: float) -> tuple[list[str], str]:
    """Faults in the end, and the figures."""
    here, now = run.here, read(run.here.books, run.here.sites)
    run.witness.look(now)
    found = account(here.books, here.sites, now, here.analyst.release_keys.known)
    grown = verdicts(here.lives, COORDINATOR, here.names, since=due // 2)
    faults = [*here.failed, *run.witness.faults, *found.faults]
    faults += [f"it grows: {verdict}" for verdict in grown if verdict.grows]
    if found.states.total() != due:
        faults.append(f"{found.states.total()} of {due} studies are known")
    happened = ", ".join(f"{count} {what}" for what, count in sorted(here.happened.items()))
    states = ", ".join(f"{count} {state}" for state, count in found.states.items())
    return faults, (
        f"{due} studies over {len(here.names)} sites in {seconds:.0f} s: {states}; {happened}; "
        f"{len(now.charged)} charges, {found.late} answers came too late; {'; '.join(map(str, grown))}"
    )


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Return what is wrong, and figures."""
    return await long_run(folder, Size.scaled(scale))

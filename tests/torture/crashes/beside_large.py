"""Rounds of small studies beside a large one, whose coordinator is killed over and over.

Two sites have records of many columns. One study of all of them follows the other: its answers are uploaded
in chunks, its noise is drawn once they are in, and its release is stored in pieces. Studies of four columns
run meanwhile, one after another, over the same sites. The coordinator is killed where only the large study
passes, and where either does. The books are held against `tests.torture.model` after each kill and at each
published round: nothing is lost, nothing is charged twice; and small rounds are released while the large
study is under way."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from unittest import mock

from eigenveil_client.connection import channel
from eigenveil_server.rpc import service
from eigenveil_server.storage import pieces
from eigenveil_server.studies import uploads
from tests.server.rig import study_toml
from tests.torture.crashes.armed import SHORT_PAUSE, Kill
from tests.torture.crashes.forked import COORDINATOR, SITES, Federation
from tests.torture.crashes.kills import Toll, one_study, restart
from tests.torture.model import opened, read

COLUMNS, LEAST_COLUMNS = 1450, 400  # with the first, an answer of 8 MB and a release of 17
PART_BYTES = 2**17
EACH = 3  # kills at each failpoint
UNARMED = 2  # large studies without a kill, after which an armed failpoint counts as unreachable
PIECES = {
    "chunk-taken": 10,
    "sealed-piece-stored": 10,
    "release-piece-stored": 10,
}  # the highest passage, where it is not the first
EITHER = {"answer-taken": 8, "noise-drawn": 5, "round-sealing": 5, "round-sealed": 5, "round-followed": 5}
LARGE = (
    "chunk-taken", "upload-committing", "sealed-piece-stored", "release-piece-stored", "bundle-built",
    "study-settling",
)  # fmt: skip


def split_only_what_is_large() -> None:
    """Send in chunks, and store in pieces, what is large, and nothing else."""
    for where, name in (
        (service, "INLINE_BYTES"),
        (service, "CHUNK_BYTES"),
        (uploads, "CHUNK_BYTES"),
        (pieces, "PIECE_BYTES"),
    ):
        mock.patch.object(where, name, PART_BYTES).start()


def kills(each: int, seed: int) -> list[Kill]:
    """All kills, in an order drawn from `seed`."""
    chance = random.Random(seed)
    highest = {**dict.fromkeys(LARGE, 1), **EITHER, **PIECES}
    found = [
        Kill(name=name, passage=chance.randint(1, most))
        for name, most in highest.items()
        for _ in range(each)
    ]
    chance.shuffle(found)
    return found


def study_texts(columns: int) -> dict[str, str]:
    """Studies by kind."""
    return {
        "small": study_toml(sites=SITES, deadline_seconds=60.0),
        "large": study_toml(sites=SITES, deadline_seconds=60.0, name="large", columns=columns),
    }


async def large_studies(here: Federation, toll: Toll, studies: dict[str, str]) -> int:
    """Run large studies until every kill is done, and one more; return how many."""
    number = idle = 0
    while (toll.left or not number) and not toll.failed:
        before = toll.done.total()
        await one_study(here, toll, "large", studies)
        number, idle = number + 1, 0 if toll.done.total() > before else idle + 1
        if idle > UNARMED:
            toll.failed.append(f"no process passes {sorted(kill.name for kill in toll.armed.values())}")
    return number


async def small_studies(here: Federation, toll: Toll, studies: dict[str, str]) -> None:
    """Run small studies, one after the other, for ever."""
    while not toll.failed:
        await one_study(here, toll, "small", studies)


def beside(here: Federation) -> int:
    """Rounds of small studies that were released while a round of a large one was under way."""
    with opened(here.books) as books:
        query = (
            "SELECT COUNT(*) FROM rounds AS small JOIN studies ON studies.digest = small.study "
            "WHERE studies.name = 'small' AND EXISTS (SELECT 1 FROM rounds AS large JOIN studies AS whole "
            "ON whole.digest = large.study WHERE whole.name = 'large' "
            "AND small.released_at BETWEEN large.opened_at AND whole.ended_at)"
        )
        ((number,),) = books.execute(query)
    return int(number)


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Every failpoint at least once; at scale 1 each three times."""
    columns = max(LEAST_COLUMNS, round(COLUMNS * min(1.0, scale)))
    here = Federation(folder, wide=columns, planted=split_only_what_is_large)
    toll = Toll(due={COORDINATOR: kills(max(1, round(EACH * scale)), seed=1)})
    studies = study_texts(columns)
    with mock.patch.object(channel, "MAX_BACKOFF_SECONDS", SHORT_PAUSE):
        try:
            await here.set_up()
            for name in SITES:
                assert await here.serves(here.start(name), name)
            for kind in studies:
                await one_study(here, toll, kind, studies)
            number = await _disturbed(here, toll, studies)
            toll.witness.look(read(here.books, here.sites))
            rounds = beside(here)
        finally:
            here.stop()
    if not rounds:
        toll.failed.append("no round of a small study was released beside a large one")
    sealed = len(toll.witness.digests)
    return toll.faults, (
        f"{toll.done.total()} kills at {len(toll.done)} failpoints in {number} studies of {columns} columns "
        f"with {rounds} rounds of small ones beside them, {sealed} releases: nothing lost or charged twice"
    )


async def _disturbed(here: Federation, toll: Toll, studies: dict[str, str]) -> int:
    here.stop((COORDINATOR,))
    keeper = asyncio.create_task(restart(here, toll, COORDINATOR))
    small = asyncio.create_task(small_studies(here, toll, studies))
    large = asyncio.create_task(large_studies(here, toll, studies))
    try:
        done, _ = await asyncio.wait((keeper, small, large), return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # a keeper only ends by an error of this test
            task.result()
        return await large
    finally:
        for task in (keeper, small, large):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(keeper, small, large, return_exceptions=True)

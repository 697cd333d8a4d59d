"""A million mutated messages, half of them to the coordinator and half to a site.

Passed: every one is accepted or refused by a declared error, what is accepted keeps its meaning, and after
its first tenth neither process keeps 6 MiB and 4 bytes a message more (8 MiB after 500,000). What fails is
stored in tests/fuzz/found."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

from tests.fuzz.coordinator import coordinator_kinds
from tests.fuzz.hunt import FOUND, Tally, hunt, memory_folder, share_one_arena
from tests.fuzz.site import site_kinds

MESSAGES = 1_000_000
# What one process may have grown by. The fixed part holds SQLite's page cache, which fills up to 2 MiB
# during the first 60,000 refusals; from then on a site's process was flat.
FIXED_BYTES, BYTES_A_MESSAGE = 6 * 2**20, 4
SEED = 20_260
Half = Callable[[Path, int, int, Path], Coroutine[object, object, Tally]]


def most_growth(inputs: int) -> int:
    """Return the limit in bytes: a fixed part, and a share for each message that a leak exceeds."""
    return FIXED_BYTES + BYTES_A_MESSAGE * inputs


async def to_coordinator(folder: Path, inputs: int, seed: int, found: Path = FOUND) -> Tally:
    async with coordinator_kinds(folder) as kinds:
        return await hunt(kinds, inputs, seed, found)


async def to_site(folder: Path, inputs: int, seed: int, found: Path = FOUND) -> Tally:
    with site_kinds(folder) as kinds:
        return await hunt(kinds, inputs, seed, found)


def _half(half: Half, inputs: int) -> Tally:
    share_one_arena()
    with memory_folder() as folder:  # a site stores every refusal durably
        return asyncio.run(half(folder / "fuzz", inputs, SEED, FOUND))


def run(folder: Path, scale: float) -> tuple[list[str], str]:
    inputs = int(MESSAGES * scale / 2)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        tallies = pool.starmap(_half, [(to_coordinator, inputs), (to_site, inputs)])
    return verdict(tallies)


def verdict(tallies: list[Tally]) -> tuple[list[str], str]:
    finds = [name for tally in tallies for name in tally.finds]
    growth = max(tally.growth for tally in tallies)
    most = most_growth(max(tally.inputs for tally in tallies))
    words = sum((counts for tally in tallies for counts in tally.outcomes.values()), Counter[str]())
    kinds = sum(len(tally.outcomes) for tally in tallies)
    refused = words.total() - words["accepted"] - words["undecodable"] - words["find"]
    message = (
        f"{words.total()} of {kinds} kinds: {words['undecodable']} undecodable, {refused} refused, "
        f"{words['accepted']} accepted with their meaning, {len(finds)} finds; +{growth / 2**20:.1f} MiB"
    )
    wrong = [f"see tests/fuzz/found/{name}" for name in finds]
    wrong += ["memory grew"] if growth >= most else []
    return wrong + ([] if words["accepted"] else ["nothing was accepted"]), message

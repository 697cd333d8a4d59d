"""`python -m tests.fuzz --minutes 10`: every hunt, one line for each kind of input.

Two processes share the time: one hunts in the coordinator, the other in a site and then in the parsers.
The seed is printed, and drawn if none is given: the same seed gives the same inputs in the same order. What
is found is kept in tests/fuzz/found. The exit code is 1 on a find, and where none of a thousand inputs
of a kind was accepted: then none got past the first look."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import eigenveil_server  # noqa: F401 - before gRPC, which reads its settings when it is loaded
from tests.fuzz.coordinator import coordinator_kinds
from tests.fuzz.hunt import Kind, Tally, hunt, memory_folder
from tests.fuzz.parsers import parser_kinds
from tests.fuzz.site import site_kinds

HALVES = (("coordinator",), ("site", "parsers"))  # of the work, each in a process
BATCH = 1000  # inputs between two looks at the clock
ENOUGH = 1000  # inputs of a kind, of which at least one is accepted
# No token is told to the hunt, its certificates are too new to be renewed, and no study of it is masked.
NEVER_ACCEPTED = frozenset({"Enrol", "Renew", "Ready"})


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncIterator[dict[str, Kind]]:
    match name:
        case "coordinator":
            async with coordinator_kinds(folder) as kinds:
                yield kinds
        case "site":
            with site_kinds(folder) as kinds:
                yield kinds
        case _:
            yield parser_kinds(folder)


async def hunted(name: str, folder: Path, seed: int, seconds: float) -> Tally:
    end, draw = time.monotonic() + seconds, random.Random(f"{seed} {name}")
    async with opened(name, folder) as kinds:
        whole = Tally(outcomes={kind: Counter() for kind in kinds})
        while True:
            tally = await hunt(kinds, BATCH, draw.getrandbits(63))
            for kind, counts in tally.outcomes.items():
                whole.outcomes[kind] += counts
            whole.finds |= tally.finds
            if time.monotonic() >= end:
                return whole


def half(names: tuple[str, ...], seed: int, seconds: float) -> list[Tally]:
    with memory_folder() as folder:  # a site stores every refusal durably
        return [asyncio.run(hunted(name, folder / name, seed, seconds / len(names))) for name in names]


def verdict(tallies: Iterable[Tally]) -> tuple[list[str], list[str]]:
    """A line for each kind, and what is wrong."""
    lines, wrong = [], []
    for tally in tallies:
        for kind, counts in sorted(tally.outcomes.items()):
            inputs, accepted, finds = counts.total(), counts["accepted"], counts["find"]
            lines.append(
                f"{kind:24} {inputs:>8} inputs {accepted:>8} accepted {inputs - accepted - finds:>8} refused "
                f"{finds:>4} finds"
            )
            if not accepted and inputs >= ENOUGH and kind not in NEVER_ACCEPTED:
                wrong.append(f"{kind}: nothing was accepted")
        wrong += [f"tests/fuzz/found/{file}: {seen[:300]}" for file, seen in sorted(tally.finds.items())]
    return lines, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="of an earlier run, for the same inputs")
    chosen = parser.parse_args()
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    with ProcessPoolExecutor(len(HALVES), multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(half, names, seed, 60 * chosen.minutes) for names in HALVES]
        lines, wrong = verdict(tally for one in running for tally in one.result())
    print("\n".join([*lines, *wrong]))
    print(f"{len(lines)} kinds of input, {len(wrong)} defects, seed {seed}")
    return 1 if wrong else 0

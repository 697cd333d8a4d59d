"""Rounds of central and of masked studies in one federation, in turns: three site processes, mutual TLS.

A round lasts from its opening to its release, by the coordinator's own records; its processor time, in the
coordinator and in a site, is what passes between the end of the round before and its own. Both trusts have
the same machine, disk and records, at nearly the same time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median

from benchmarks.process import kept_if_failed
from benchmarks.wide import SITES, Case, ParquetLayout, Watched, WideFederation, passages, write
from eigenveil.study.study import Study, Trust
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.demo.layout import DemoLayout, open_demo_folder
from eigenveil_client.demo.processes import Processes
from eigenveil_proto.v1 import eigenveil_pb2 as pb

ENOUGH = ("--budget-epsilon", "1000", "--budget-delta", "1e-3")  # for every study of a run
LONG = ("gram", "gradient")  # questions whose answers are long; all others count as small
SMALL = "small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Milliseconds by the clock, and of processor time in the coordinator and in one site (the mean)."""

    kind: str
    clock: float
    coordinator: float
    site: float


class Spending(WideFederation):
    """Parties whose budgets last for every study of a run."""

    def __init__(self, layout: DemoLayout, study: Study, processes: Processes) -> None:
        super().__init__(layout, study, processes)
        self._budget = ENOUGH


@contextmanager
def serving(case: Case) -> Iterator[tuple[ParquetLayout, Spending]]:
    """A federation with records for a case, whose sites know each other."""
    study = parse_study(replace(case, trust=Trust.SECURE_AGGREGATION).toml)
    with kept_if_failed() as folder, open_demo_folder(folder / "bench") as made:
        layout = ParquetLayout(made.root)
        processes = Watched(layout.logs)
        layout.study.write_text(case.toml)
        try:
            federation = Spending(layout, study, processes)
            for seed, name in enumerate(SITES):
                write(layout, study, name, case.records, seed + 1)
            federation.set_up()
            yield layout, federation
        finally:
            processes.stop()


async def over(layout: DemoLayout, digest: bytes) -> None:
    """Wait until a study was released. Its document, which grows with the square of the columns, is left
    where it is."""
    state = None
    async with Analyst(load_identity(layout.analyst)) as analyst:
        async for event in analyst.watch(digest):
            state = event.state
    if state != pb.STUDY_STATE_RELEASED:
        raise RuntimeError(f"the study was not released; see {layout.logs}")


def one_study(layout: DemoLayout, federation: Spending, case: Case) -> list[Round]:
    """Run it, and read what each round took but the first, in which records are loaded."""
    layout.study.write_text(case.toml)
    digest = federation.submit("--again")
    asyncio.run(over(layout, bytes.fromhex(digest)))
    with closing(sqlite3.connect(layout.coordinator / "state.db")) as database:
        statement = "SELECT kind, released_at - opened_at FROM rounds WHERE study = ? ORDER BY round"
        rows = database.execute(statement, (digest,)).fetchall()
    coordinator = processor(layout, "coordinator", "round-sealed", len(rows))
    sites = zip(*(processor(layout, name, "reply-sent", len(rows)) for name in SITES), strict=True)
    return [
        Round(kind=kind if kind in LONG else SMALL, clock=took, coordinator=theirs, site=mean(own))
        for (kind, took), theirs, own in zip(rows[1:], coordinator, sites, strict=True)
    ]


def processor(layout: DemoLayout, name: str, place: str, rounds: int) -> list[float]:
    """Milliseconds between the passages of a place in the last rounds of a process, one a round."""
    passed = [one.processor for one in passages(layout, name) if one.place == place][-rounds:]
    return [1e3 * (after - before) for before, after in pairwise(passed)]


def compared(case: Case, repeats: int) -> dict[Trust, list[Round]]:
    """Rounds of so many studies of each trust, in turns; a first study of each is not counted."""
    found: dict[Trust, list[Round]] = {trust: [] for trust in Trust}
    with serving(case) as (layout, federation):
        for turn in range(repeats + 1):
            for trust in Trust if turn % 2 else reversed(Trust):
                rounds = one_study(layout, federation, replace(case, trust=trust))
                found[trust] += rounds if turn else []
    return found


def summed(case: Case, repeats: int) -> dict[str, dict[str, float]]:
    """By kind of round: how many of either trust, and the medians in seconds."""
    found, kinds = compared(case, repeats), {}
    for kind in (SMALL, *LONG):
        sides = {trust: [one for one in found[trust] if one.kind == kind] for trust in Trust}
        masked = sides[Trust.SECURE_AGGREGATION]
        if masked:
            kinds[kind] = {"rounds": float(len(masked)), **_medians("", masked)}
            kinds[kind] |= _medians("central_", sides[Trust.CENTRAL])
    return kinds


def _medians(before: str, rounds: Sequence[Round]) -> dict[str, float]:
    return {
        f"{before}seconds": median(one.clock for one in rounds) / 1e3,
        f"{before}coordinator_seconds": median(one.coordinator for one in rounds) / 1e3,
        f"{before}site_seconds": median(one.site for one in rounds) / 1e3,
    }

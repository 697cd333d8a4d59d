"""kill -9 of the coordinator and of a site at random moments of the demonstration's study.

Every study completes, is charged for at least what was released, by the coordinator and by every site,
and has exactly one release. [P6]"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code, EigenveilError
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.verify import load_release
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.demo.federation import COORDINATOR
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.integration.stage import SITES, Stage

MOMENTS = 1.5  # seconds from the submission: the study takes about this long, kills included
VICTIMS: tuple[tuple[str, ...], ...] = ((COORDINATOR, SITES[1]), (COORDINATOR,), (SITES[0],))
RUNS = [(victims, seed) for seed in range(8) for victims in VICTIMS]  # 32 kills in 24 runs


async def submit(analyst: Analyst, text: str, submission: str) -> Plan:
    """Submit as a stubborn analyst does: again, under the same id, until there is an answer."""
    while True:
        try:
            return (await analyst.submit(text, submission))[0]
        except EigenveilError as problem:
            if problem.code is not Code.UNREACHABLE:
                raise


async def study_with_kills(stage: Stage, submission: str, kills: Sequence[tuple[float, str]]) -> str:
    """Submit, kill and restart at the given moments, follow to the end; the study's digest."""
    async with Analyst(stage.analyst) as analyst:
        submitting = asyncio.create_task(submit(analyst, stage.text, submission))
        waited = 0.0
        for moment, victim in sorted(kills):
            await asyncio.sleep(moment - waited)
            waited = moment
            stage.federation.kill(victim)
            stage.federation.restart(victim)
        plan = await submitting
        assert (await submit(analyst, stage.text, submission)).digest == plan.digest
        events = [event async for event in analyst.watch(bytes.fromhex(plan.digest))]
        assert (events[-1].state, events[-1].failure) == (pb.STUDY_STATE_RELEASED, "")
        numbers = [event.sequence for event in events]
        assert numbers == sorted(set(numbers))
    return plan.digest


async def fetch(stage: Stage, digest: str) -> bytes:
    async with Analyst(stage.analyst) as analyst:
        return await analyst.release(bytes.fromhex(digest))


def select(database: Path, statement: str, *values: str) -> list[tuple[Any, ...]]:
    """Rows of a database that its daemon holds open."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(statement, values).fetchall()


def charges(database: Path, study: str) -> dict[int, int]:
    """Micro-rho charged for each round of a study; no round is charged twice."""
    spends = "SELECT round, micro_rho FROM ledger WHERE kind IN ('charge', 'attempt') AND study = ?"
    rows = select(database, spends, study)
    assert len({row[0] for row in rows}) == len(rows)
    return dict(rows)


# In the suite that everybody runs, test_masked.py kills two of a masked study.
@pytest.mark.slow
@pytest.mark.parametrize(("victims", "seed"), RUNS)
def test_killed_at_a_random_moment(victims: tuple[str, ...], seed: int, stage: Stage) -> None:
    submission = f"{'-'.join(victims)}-{seed}"
    generator = random.Random(submission)
    kills = [(generator.uniform(0, MOMENTS), victim) for victim in victims]

    digest = asyncio.run(study_with_kills(stage, submission, kills))
    data = asyncio.run(fetch(stage, digest))

    release = load_release(data)
    assert release.public_key == stage.analyst.authorities.release_key
    document = release.document
    released = {entry["round"]: entry["micro_rho"] for entry in document["rounds"]}
    assert sorted(released) == list(range(len(released)))

    state = stage.layout.coordinator / "state.db"
    charged = charges(state, digest)
    assert sum(charged.values()) >= sum(released.values())
    assert {number: charged[number] for number in released} == released
    for name in SITES:
        paid = charges(stage.layout.site(name) / "state.db", digest)
        answered = [entry["round"] for entry in document["rounds"] if name in entry["present"]]
        assert {number: paid[number] for number in answered} == {n: released[n] for n in answered}

    # One study, one sealed vector a round, one release: the same bytes for ever.
    assert select(state, "SELECT COUNT(*) FROM studies WHERE submission = ?", submission) == [(1,)]
    sealed = select(state, "SELECT round, digest FROM releases WHERE study = ? ORDER BY round", digest)
    assert sealed == [(entry["round"], entry["release"]) for entry in document["rounds"]]
    if COORDINATOR in victims:
        stage.federation.kill(COORDINATOR)
        stage.federation.restart(COORDINATOR)
    assert asyncio.run(fetch(stage, digest)) == data
    assert document["plan"]["submission"] == submission

"""Masked studies of three sites as processes: killed, and with a site that is lost for good. [P31] [P33]

The books are held against `tests.torture.model`: each number of a round has one set, each attempt is paid by
the coordinator and by whoever answered it, and what is released is of the sites of the last attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from eigenveil.reporting.verify import load_release, verify_release
from eigenveil.study.study import Trust
from eigenveil.study.toml import parse_study, study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.demo.federation import COORDINATOR
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.integration.stage import SITES, Stage
from tests.integration.test_kills import fetch, select, study_with_kills
from tests.torture.model import Witness, read

LOST = SITES[2]


def masked(stage: Stage, deadline: float) -> Stage:
    """The same federation, asked a masked study with two attempts at each round."""
    study = parse_study(stage.text)
    federation = replace(study.federation, quorum=2, deadline_seconds=deadline)
    study = replace(study, trust=Trust.SECURE_AGGREGATION, spare_attempts=2, federation=federation)
    return replace(stage, text=study_to_toml(study))


def check_books(stage: Stage) -> None:
    witness, sites = Witness(), {name: stage.layout.site(name) / "state.db" for name in SITES}
    witness.look(read(stage.layout.coordinator / "state.db", sites))
    assert witness.faults == []
    assert witness.sets


def tried(stage: Stage, who: str, study: str) -> Counter[int]:
    """Count of charges to `who` for each round of a study."""
    folder = stage.layout.coordinator if who == COORDINATOR else stage.layout.site(who)
    rows = select(folder / "state.db", "SELECT round FROM ledger WHERE (kind, study) = ('attempt', ?)", study)
    return Counter(row[0] for row in rows)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in range(6)]
)
def test_killed_at_any_moment_a_masked_study_is_released_and_paid(seed: int, stage: Stage) -> None:
    here, victims = masked(stage, 60.0), ((COORDINATOR, SITES[1]), (SITES[0], COORDINATOR))[seed % 2]
    kills = [(0.4 + 0.35 * seed * (index + 1) % 1.3, victim) for index, victim in enumerate(victims)]
    digest = asyncio.run(study_with_kills(here, f"masked-{seed}", kills))
    release = load_release(asyncio.run(fetch(here, digest)))
    verify_release(release, here.analyst.release_keys.known)
    assert all(tuple(one["present"]) == SITES for one in release.document["rounds"])
    check_books(here)


def test_a_site_that_is_lost_costs_an_attempt_and_the_rest_goes_on(stage: Stage) -> None:
    here = masked(stage, 15.0)  # waited for once, and met by the others on a slow machine

    async def follow() -> str:
        async with Analyst(here.analyst) as analyst:
            plan, _ = await analyst.submit(here.text, "lost-member")
            killed, events = False, []
            async for event in analyst.watch(bytes.fromhex(plan.digest)):
                events.append(event)
                if event.round_state == "released" and not killed:
                    killed = True
                    await asyncio.to_thread(here.federation.kill, LOST)
            assert (events[-1].state, events[-1].failure) == (pb.STUDY_STATE_RELEASED, "")
            return plan.digest

    try:
        digest = asyncio.run(follow())
    finally:
        here.federation.restart(LOST)
    rounds = load_release(asyncio.run(fetch(here, digest))).document["rounds"]
    alone = [one["round"] for one in rounds if tuple(one["present"]) == SITES[:2]]
    assert alone == list(range(alone[0], len(rounds)))
    again = {alone[0]: 2}
    for who in (COORDINATOR, *SITES[:2]):
        assert tried(here, who, digest) == Counter(dict.fromkeys(range(len(rounds)), 1) | again)
    assert set(tried(here, LOST, digest).values()) <= {1}
    assert max(tried(here, LOST, digest)) <= alone[0]
    check_books(here)

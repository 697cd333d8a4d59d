"""A site at which a person has to agree first is offered nothing, and those who watch see that it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.queries import Count
from eigenveil.study.study import Federation
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.study_reads import Answers
from eigenveil_server.studies.open_round import OpenRound
from eigenveil_server.studies.site_approvals import SiteApprovals
from tests.server.rig import HOUR, SITES, answering, made, serving, study_toml
from tests.support import a_query
from tests.torture.programs.virtual import VirtualLoop, play


def test_a_site_that_waits_for_approval_is_shown_and_offered_the_round_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(made(tmp_path / "c", long_poll_seconds=0.2)) as rig:
            sites = dict(await rig.sites())
            analyst = await rig.client(Role.ANALYST, "ada")
            carl = sites.pop("carl")
            async with answering(sites):
                digest = await analyst.submit(study_toml(deadline_seconds=60.0))
                first = await carl.query()
                waiting = pb.NextWorkRequest(known_plans=carl.known, awaiting=carl.known)
                for _ in range(3):
                    assert not (await carl.stub.NextWork(waiting)).HasField("query")
                again = await carl.query()  # a person agreed
                assert again.digest == first.digest
                async with answering({"carl": carl}):
                    events = await analyst.events(digest)
            assert events[-1].state == pb.STUDY_STATE_RELEASED
            said = [{one.site: one.status for one in event.sites}.get("carl") for event in events]
            assert said.count("waiting for approval") >= 1
            assert said[-1] == "answered"

    asyncio.run(scenario())


def test_a_site_that_is_not_invited_cannot_have_itself_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(made(tmp_path / "c", long_poll_seconds=0.2)) as rig:
            sites = dict(await rig.sites())
            analyst = await rig.client(Role.ANALYST, "ada")
            dora = await rig.client(Role.SITE, "dora")
            async with answering(sites):
                digest = await analyst.submit(study_toml(deadline_seconds=60.0))
                await dora.stub.NextWork(pb.NextWorkRequest(awaiting=[bytes.fromhex(digest)]))
                events = await analyst.events(digest)
            assert "waiting for approval" not in {one.status for event in events for one in event.sites}

    asyncio.run(scenario())


def waited(script: Callable[[SiteApprovals, OpenRound], Coroutine[Any, Any, None]], **federation: Any) -> Any:
    """How long a round with a deadline of 60 s, and two hours for persons, waits while `script` goes on; and
    who is not in, in words."""
    invited = Federation(sites=SITES, deadline_seconds=60.0, **federation)

    async def scenario(loop: VirtualLoop) -> tuple[float, str]:
        inbox = OpenRound(a_query(Count()), invited, Answers(macs={}, declined={}))
        approvals = SiteApprovals(SITES, ends=2 * HOUR, clock=lambda: int(1000 * loop.time()))
        others = asyncio.create_task(script(approvals, inbox))
        await approvals.answered(inbox, 60.0)
        others.cancel()
        return loop.time(), approvals.reasons(inbox)

    return play(scenario, seed=1)


def answers(inbox: OpenRound, *sites: str) -> None:
    for site in sites:
        inbox.put(site, b"", frozen([60]))


async def asks(approvals: SiteApprovals, hours: float) -> None:
    """Carl's daemon says every 30 s that a person is being asked."""
    for _ in range(int(hours * 120)):
        approvals.hear("carl", asks=True)
        await asyncio.sleep(30)


def test_the_deadline_runs_once_the_person_whom_a_round_needs_has_decided() -> None:
    async def script(approvals: SiteApprovals, inbox: OpenRound, answer: bool = True) -> None:
        answers(inbox, "anna", "bert")
        await asks(approvals, hours=0.5)
        approvals.hear("carl", asks=False)
        await asyncio.sleep(50)
        if answer:
            answers(inbox, "carl")

    assert waited(script) == (pytest.approx(1800 + 50, abs=1), "")
    silent = partial(script, answer=False)
    assert waited(silent) == (pytest.approx(1800 + 60, abs=6), "carl: did not answer")


def test_a_person_is_not_waited_for_where_the_round_can_go_on_or_the_operators_limit_has_passed() -> None:
    async def script(approvals: SiteApprovals, inbox: OpenRound) -> None:
        answers(inbox, "anna", "bert")
        await asks(approvals, hours=4)

    undecided = "carl: nobody has approved the study there"
    assert waited(script, quorum=2) == (pytest.approx(60, abs=1), undecided)
    needed = waited(script, quorum=2, required=("carl",))
    assert needed == (pytest.approx(2 * 3600 + 60, abs=6), undecided)


def test_a_site_that_fell_silent_or_declined_is_not_waited_for() -> None:
    async def silent(approvals: SiteApprovals, inbox: OpenRound) -> None:
        await asks(approvals, hours=0.5)

    async def declined(approvals: SiteApprovals, inbox: OpenRound) -> None:
        answers(inbox, "anna", "bert")
        await asks(approvals, hours=0.2)
        inbox.decline("carl", "policy")
        inbox.stored("carl")
        await asyncio.sleep(HOUR)

    assert waited(silent)[0] < 2 * 3600
    assert waited(declined) == (pytest.approx(720, abs=1), "carl: declined: policy")

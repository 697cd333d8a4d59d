"""An answer and the next question for work in one call [R27]."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil_common.rpc import WITH_NEXT_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage.states import NO_CONSENT
from tests.server.rig import Client, refusal, study_toml
from tests.server.studies.test_contributions import FULL, first_round

SOON = 0.5  # seconds in which an answer that is taken would be told of, and is not


def along(
    site: Client, round_query: RoundQuery, request: pb.NextWorkRequest | None = None
) -> pb.ContributeRequest:
    """An answer to the first round, and what the site would ask next."""
    message = site.contribution(round_query, FULL)
    message.next.CopyFrom(request or site.request())
    return message


async def test_the_reply_to_an_answer_is_the_next_question_and_comes_no_sooner(tmp_path: Path) -> None:
    """Nobody learns from it who else has answered: it comes with the release, as NextWork does [P27]."""

    async with first_round(tmp_path / "c") as (rig, sites, _, query):
        calls = {
            name: asyncio.ensure_future(site.stub.Contribute(along(site, query)))
            for name, site in sites.items()
            if name != "carl"
        }
        studies = rig.repository.studies
        while studies.answers(query.plan_digest, 0).macs.keys() != calls.keys():  # until they are durable
            await asyncio.sleep(0.01)
        await asyncio.sleep(SOON)
        assert not any(call.done() for call in calls.values())
        calls["carl"] = asyncio.ensure_future(sites["carl"].stub.Contribute(along(sites["carl"], query)))
        for name, taken in zip(calls, await asyncio.gather(*calls.values()), strict=True):
            round_query = sites[name].receive(taken.next)
            assert (taken.repeated, round_query and round_query.round) == (False, 1)


@pytest.mark.parametrize("wrong", ["answer", "request", "size"])
async def test_a_request_beside_a_refused_answer_has_no_effect(tmp_path: Path, wrong: str) -> None:
    async with first_round(tmp_path / "c") as (rig, sites, analyst, query):
        anna = sites["anna"]
        other = await analyst.submit(study_toml(name="other"), "two", agreed=False)
        plan = bytes.fromhex(other)
        request = pb.NextWorkRequest(known_plans=[plan], agreed=[pb.Agreed(plan_digest=plan)])
        message = along(anna, query, request)
        if wrong == "answer":
            message.values = bytes(8)
        elif wrong == "request":
            message.next.awaiting_approval.append(plan)
        else:
            message.values = bytes(WITH_NEXT_BYTES + 8)
        code = Code.BAD_CONTRIBUTION if wrong == "answer" else Code.PROTOCOL
        assert (await refusal(anna.stub.Contribute(message))).code is code
        consent = rig.daemon.engine._runs[other].consent
        assert consent.consent_of_site("anna") == NO_CONSENT
        assert not rig.repository.studies.answers(query.plan_digest, 0).macs
        assert not (await anna.contribute(query, FULL)).repeated


async def test_who_is_shut_out_while_it_waits_gets_no_question(tmp_path: Path) -> None:
    async with first_round(tmp_path / "c", study_toml(quorum=2)) as (rig, sites, _, query):
        anna, studies = sites["anna"], rig.repository.studies
        call = asyncio.ensure_future(anna.stub.Contribute(along(anna, query)))
        while not studies.answers(query.plan_digest, 0).macs:
            await asyncio.sleep(0.01)
        rig.daemon._calls.sweep = lambda: None  # type: ignore[method-assign]  # which ends it as well
        rig.daemon.registry.deny(Role.SITE, "anna")
        for name in ("bert", "carl"):
            await sites[name].contribute(query, frozen([60]))
        assert (await refusal(call)).code is Code.IDENTITY

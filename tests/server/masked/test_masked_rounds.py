"""Rounds that nobody sees a sum of: who is in a set, what is charged, and how one without an answer ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, EigenveilError
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.planning.choose import dearest, rehearse
from eigenveil.reporting.verify import load_release
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.study.study import Federation, Trust
from eigenveil_common.files import arm, disarm
from eigenveil_common.rpc import error_from
from eigenveil_common.storage.ledger_store import ExtraWrite, LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds.round import Round
from eigenveil_server.storage.study_reads import RoundAnswers
from tests.server.deadlines import Place, pass_without
from tests.server.masked.sites import (
    ROWS,
    attempts_of,
    charges_of,
    key_of,
    masked_sites,
    masked_toml,
    sent_key,
    serving_sites,
    study_key,
)
from tests.server.rig import SITES, Client, Rig, made, refusal, serving, study_toml
from tests.support import a_plan

ROUNDS = 7
PAIR = ("anna", "bert")


async def refused_if_over(call: Coroutine[Any, Any, object]) -> EigenveilError | None:
    """The error that a call ends with, if it does."""
    try:
        await call
    except grpc.aio.AioRpcError as problem:
        return error_from(problem)
    return None


async def ends(rig: Rig, ada: Client, toml: str) -> tuple[str, pb.StudyEvent]:
    """Submit and watch to the end; the study and its last event."""
    digest = await ada.submit(toml)
    return digest, (await ada.events(digest))[-1]


def costs(rig: Rig, digest: str) -> dict[int, int]:
    """Cost of each released round of a study, once."""
    sealed = rig.repository.studies.sealed_rounds(digest)
    return {one.release.round: one.release.micro_rho for one in sealed}


async def test_a_masked_study_is_released_after_one_trip_a_round(rig: Rig) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    async with serving_sites(sites):
        digest = await ada.submit(masked_toml())
        events = await ada.events(digest)
    assert (events[-1].state, events[-1].failure) == (pb.STUDY_STATE_RELEASED, "")
    assert {name: site.readied for name, site in sites.items()} == {name: [0] for name in SITES}
    assert attempts_of(rig, digest) == {(round, 1): SITES for round in range(ROUNDS)}
    repository = rig.repository
    sealed = [one.release for one in repository.studies.sealed_rounds(digest)]
    assert charges_of(rig, digest) == [(one.round, "attempt", one.micro_rho) for one in sealed]
    assert abs(sealed[0].values[0] - len(SITES) * ROWS) < 8 * sealed[0].sigma
    stored = repository.studies.get(digest)
    plan = repository.studies.plan_of(stored)
    assert plan.cost.micro_rho == plan.micro_rho + dearest(plan) == stored.micro_rho
    assert repository.lists.get(digest).summary.atto_delta == plan.cost.atto_delta
    assert {event.micro_rho for event in events} == {plan.cost.micro_rho}
    assert events[-1].spent_micro_rho == sum(one.micro_rho for one in sealed)
    result = [(one.round, one.attempt) for one in events if one.round_state == "fixed"]
    assert set(result) == {(round, 1) for round in range(ROUNDS)}
    document = load_release(await ada.release(digest)).document
    assert [one["present"] for one in document["rounds"]] == [list(SITES)] * ROUNDS
    assert {one.attempts for one in repository.studies.records(digest)} == {1}


async def test_an_attempt_without_a_member_is_charged_and_made_again_without_it(
    rig: Rig, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member that was lost is ready for the next round, and in the set of the one after that."""

    def loses(site: str, place: Place) -> bool:
        return (site, place) == ("carl", (2, 1))

    pass_without(monkeypatch, loses)
    sites = await masked_sites(rig, loses)
    async with serving_sites(sites):
        digest, last = await ends(rig, ada, masked_toml())
    assert (last.state, last.failure) == (pb.STUDY_STATE_RELEASED, "")
    sets = attempts_of(rig, digest)
    assert (sets[2, 1], sets[2, 2]) == (SITES, PAIR)
    assert set(sets) == {(round, 1) for round in range(ROUNDS)} | {(2, 2)}
    assert sets[ROUNDS - 1, 1] == SITES, "it is in again"
    once = costs(rig, digest)
    assert charges_of(rig, digest) == [(place[0], "attempt", once[place[0]]) for place in sorted(sets)]
    assert last.spent_micro_rho == sum(once.values()) + once[2]
    rounds = load_release(await ada.release(digest)).document["rounds"]
    assert (rounds[2]["present"], rounds[2]["absent"]) == (list(PAIR), {"carl": "did not answer"})
    studies = rig.repository.studies
    assert [one.attempts for one in studies.records(digest)] == [1, 1, 2, 1, 1, 1, 1]
    assert studies.answers(digest, 2, 1).macs.keys() == set(PAIR) == studies.answers(digest, 2, 2).macs.keys()


@pytest.mark.parametrize(
    ("toml", "why", "charged"),
    [
        ({"spares": 0}, "round 1 lost carl in attempt 1, and no spare attempt is left; what was attempt", 1),
        ({"spares": 1, "quorum": 3}, "2 of the 3 sites needed answered; 1 attempt remains charged", 1),
        ({"spares": 1, "required": ["carl"]}, "did not answer: carl; 1 attempt remains charged", 1),
        ({"spares": 2, "quorum": 2}, "0 of the 2 sites needed answered; 2 attempts remain charged", 2),
    ],
)
async def test_a_study_without_attempts_left_fails_and_reports_its_charges(
    toml: dict[str, object], why: str, charged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses(site: str, place: Place) -> bool:
        return (
            (place == (0, 1) and site == "carl")
            or place == (0, 2)
            or (site == "carl" and place[1] == 0 and bool(gone))
        )

    gone: list[int] = []
    pass_without(monkeypatch, loses)

    try:
        async with serving(made(tmp_path / "c")) as rig:
            sites, ada = await masked_sites(rig, loses), await rig.client(Role.ANALYST, "ada")
            async with serving_sites(sites):
                arm("set-fixed", lambda: gone.append(1))
                digest, last = await ends(rig, ada, masked_toml(**toml))  # type: ignore[arg-type]
            assert last.state == pb.STUDY_STATE_FAILED
            assert why in last.failure
            assert "carl: did not answer" in last.failure
            assert "nothing was charged" not in last.failure
            assert [round for round, _, _ in charges_of(rig, digest)] == [0] * charged
            assert last.spent_micro_rho == sum(rho for _, _, rho in charges_of(rig, digest)) > 0
            ledger = rig.repository.ledger.ledger
            assert ledger.committed() == ledger.spent
    finally:
        disarm()


async def test_no_attempt_is_made_that_the_pool_does_not_pay_for(
    rig: Rig, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool is for one attempt at the dearest round, and far fewer than 8 numbers are used."""
    dear, lost = ROUNDS - 1, {1: "carl", 2: "bert"}

    def loses(site: str, place: Place) -> bool:
        return place[0] == dear and lost.get(place[1]) == site

    pass_without(monkeypatch, loses)
    sites = await masked_sites(rig, loses)
    async with serving_sites(sites):
        digest, last = await ends(rig, ada, masked_toml(spares=1))
    assert last.state == pb.STUDY_STATE_FAILED
    assert f"round {ROUNDS} lost bert in attempt 2, and no spare attempt is left" in last.failure
    assert [round for round, _, _ in charges_of(rig, digest)] == [*range(ROUNDS), dear]


@pytest.mark.parametrize("how", ["declines", "denied"])
async def test_an_attempt_is_worthless_at_once_without_a_member(rig: Rig, how: str) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    carl = sites.pop("carl")
    async with serving_sites(sites):
        digest = await ada.submit(masked_toml(deadline_seconds=60.0))
        round_query, attempt = await carl.round_query()
        assert attempt is None
        await carl.ready(round_query)
        round_query, attempt = await carl.round_query()
        assert attempt is not None
        if how == "denied":
            rig.daemon.registry.deny(Role.SITE, "carl")
            await rig.daemon.engine.sweep()
        else:
            await carl.decline(round_query)
            refused = await refusal(carl.ready(round_query))
            assert (refused.code, "a decline is final" in str(refused)) == (Code.CONFLICT, True)
            carl.loses = lambda site, place: place[0] < 2
            sites["carl"] = carl
        async with asyncio.timeout(50), serving_sites({"carl": carl} if how == "declines" else {}):
            last = (await ada.events(digest))[-1]
    assert (last.state, last.failure) == (pb.STUDY_STATE_RELEASED, "")
    sets = attempts_of(rig, digest)
    assert (sets[0, 1], sets[0, 2], sets[1, 1]) == (SITES, PAIR, PAIR)
    assert (sets[ROUNDS - 1, 1] == SITES) == (how == "declines")


@pytest.mark.parametrize("after", ["ready", "answer"])
async def test_a_site_that_is_denied_is_in_no_later_set_that_is_charged(rig: Rig, after: str) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    digest, carl = await ada.submit(masked_toml()), sites.pop("carl")
    for site in (carl, *(sites.values() if after == "answer" else ())):
        await site.ready((await site.round_query())[0])
    if after == "answer":
        round_query, attempt = await carl.round_query()
        assert attempt is not None
        await carl.send(round_query, attempt)
    await rig.daemon._guard.stop()  # so that no sweep sees it
    rig.daemon.registry.deny(Role.SITE, "carl")
    async with serving_sites(sites):
        last = (await ada.events(digest))[-1]
    assert (last.state, last.failure) == (pb.STUDY_STATE_RELEASED, "")
    first = {(0, 1): SITES} if after == "answer" else {}
    assert attempts_of(rig, digest) == {(round, 1): PAIR for round in range(ROUNDS)} | first


async def test_who_declines_while_the_next_set_is_fixed_is_not_in_it_or_ends_it_at_once() -> None:
    """Found here: it was refused, and asked for an attempt that was paid and that it declined again."""
    plan = a_plan(
        trust=Trust.SECURE_AGGREGATION, spare_attempts=2, federation=Federation(sites=SITES, quorum=2)
    )
    round_query = rehearse(plan)[0]
    cards = {site: key_of(site, plan.digest) for site in SITES}
    first = Attempt.at(round_query, 1, cards)
    few = Attempt.at(round_query, 2, {site: cards[site] for site in SITES[1:]})
    nothing = RoundAnswers(macs={}, declined={})
    without = Round(round_query, plan.study.federation, nothing, masked=True, attempts=[few])
    assert without.statuses() == {"anna": "absent", "bert": "waiting", "carl": "waiting"}
    last = Round(round_query, plan.study.federation, nothing, masked=True, attempts=[first])
    await last.freeze()
    last.decline("anna", "policy")
    assert last.eligible() == {site: card for site, card in cards.items() if site != "anna"}
    stage = last.next_attempt(Attempt.at(round_query, 2, last.eligible()))
    last.decline("bert", "policy")
    stage.take_over(last)
    assert (stage.awaits("bert"), stage.awaits("carl"), stage.ready.is_set()) == (False, True, True)


async def test_what_the_reservation_does_not_hold_is_not_attempted(
    rig: Rig, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LedgerStore.reserve

    def half(self: LedgerStore, study: str, cost: Cost, *also: ExtraWrite, gaussian: bool) -> None:
        less = Cost(micro_rho=cost.micro_rho // 2, atto_delta=cost.atto_delta)
        real(self, study, less, *also, gaussian=gaussian)

    def loses(site: str, place: Place) -> bool:
        return site == "carl" and place[1] == 1

    monkeypatch.setattr(LedgerStore, "reserve", half)
    pass_without(monkeypatch, loses)

    sites = await masked_sites(rig, loses)
    async with serving_sites(sites):
        digest, last = await ends(rig, ada, masked_toml())
    assert last.state == pb.STUDY_STATE_FAILED
    assert "of the study's reservation would exceed it" in last.failure
    slots = sorted(attempts_of(rig, digest))
    assert [round for round, _ in slots] == [round for round, _, _ in charges_of(rig, digest)]
    ledger = rig.repository.ledger.ledger
    assert last.spent_micro_rho == ledger.spent.micro_rho


async def test_who_may_get_ready_for_what(rig: Rig) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    anna, carl = sites["anna"], sites.pop("carl")
    await ada.submit(masked_toml(sites=list(PAIR)))
    round_query, attempt = await anna.round_query()
    assert attempt is None
    assert (await refusal(carl.ready(round_query))).code is Code.NOT_FOUND
    other = pb.ReadyRequest(
        plan_digest=bytes.fromhex(round_query.plan_digest), query_digest=bytes(32),
        study_key=sent_key(study_key("anna", round_query.plan_digest)),
    )  # fmt: skip
    assert (await refusal(anna.client.stub.Ready(other))).code is Code.PROTOCOL
    other.round = 1
    assert (await refusal(anna.client.stub.Ready(other))).code is Code.NOT_FOUND
    exact = anna.client.contribution(round_query, frozen([60]))
    assert (await refusal(anna.client.stub.Contribute(exact))).code is Code.BAD_CONTRIBUTION
    await anna.ready(round_query)
    events = rig.repository.studies.events
    result = len(events(round_query.plan_digest, 0))
    for _ in range(5):  # harmless, and no news: else the disk fills with it
        await anna.ready(round_query, "another-card")
        await asyncio.sleep(0.05)
    await anna.ready(round_query)
    assert len(events(round_query.plan_digest, 0)) - result <= 1
    await sites["bert"].round_query()
    await sites["bert"].ready(round_query)
    _, attempt = await anna.round_query()
    assert attempt is not None
    await anna.ready(round_query)  # of a member it is known
    await anna.send(round_query, attempt)
    await sites["bert"].send(round_query, (await sites["bert"].round_query())[1])  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while (again := await refused_if_over(anna.ready(round_query))) is None:
            await asyncio.sleep(0.01)  # from its release to the next question the round is the latest one
    assert again.code is Code.CONFLICT
    assert "was closed before" in str(again)
    await ada.submit(study_toml(), "two")
    query = await carl.client.query()
    refused = await refusal(carl.ready(query))
    assert (refused.code, "are not masked" in str(refused)) == (Code.BAD_ARGUMENT, True)


def test_every_attempt_before_is_known_as_one_that_has_passed() -> None:
    plan = a_plan(
        trust=Trust.SECURE_AGGREGATION, spare_attempts=2, federation=Federation(sites=SITES, quorum=2)
    )
    round_query = rehearse(plan)[0]
    cards = dict.fromkeys(SITES, "ab" * 32)
    attempts = [Attempt.at(round_query, number, cards) for number in (1, 2, 3)]
    stage = Round(round_query, plan.study.federation, RoundAnswers(macs={}, declined={}), masked=True)
    for number, attempt in enumerate(attempts):
        stage = stage.next_attempt(attempt)
        assert [stage.is_earlier_attempt(one.digest) for one in attempts] == [at < number for at in range(3)]

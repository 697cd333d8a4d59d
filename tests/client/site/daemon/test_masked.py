"""[P31] [P33] A site masks for peers that its people confirmed, once for each attempt, and pays for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code, RequestError
from eigenveil.noise.source import OsNoise, share_spec
from eigenveil.planning.choose import rehearse
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.secure_aggregation.study_keys import StudyKey
from eigenveil.site.site import Site
from eigenveil.study.study import MAX_ATTEMPTS
from eigenveil_client.site.commands.evidence import check_published, sets, sets_text
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready, RecordAnswers
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.round_checks import PeerChanged
from eigenveil_client.site.roster.pins import PinStatus
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_client.site.state.study_keys import OwnStudyKey
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.records import support as records
from tests.client.site.masking import (
    EVERY,
    OTHERS,
    PLAN,
    QUESTIONS,
    Peers,
    answered,
    assignment,
    confirm,
    keys_of,
    left,
    masked_plan,
    private_key,
    process,
    reply_to,
    row_count,
    spoil,
    stated_key,
)
from tests.client.site.scripted import FEDERATION, Coordinator
from tests.client.site.stated import RELEASE_KEY, STUDY_KEYS
from tests.client.site.support import SITE, Log, a_plan, a_stage, ended, killed_at, reason_of, until
from tests.support import changed_query, refused

FIRST, SECOND, *_ = QUESTIONS
COST = FIRST.priced.micro_rho


def test_ready_has_no_number_and_no_charge(peers: Peers) -> None:
    with process(peers.stage) as (store, worker):
        reply = reply_to(worker, FIRST)
        key = store.study_keys.get_or_make(PLAN.digest, peers.keys[SITE]).signed
        assert reply == Ready(plan_digest=PLAN.digest, round=0, query=FIRST.digest, key=key)
        assert key.check(peers.keys[SITE].card.signing).plan == PLAN.digest
        (row,) = store.egress.verify(store.ledger)
        assert (row.kind, row.bytes, row.query, row.contribution) == ("ready", 0, FIRST.digest, "")
        assert (left(store)[0], row_count(store, "attempts")) == (0, 0)


def test_masked_answer_has_a_noise_share_and_masks_of_all_others(peers: Peers) -> None:
    attempt = peers.attempt(FIRST, members=EVERY[:3])
    with process(peers.stage) as (store, worker), mock.patch.object(OsNoise, "draw") as draw:
        draw.side_effect = lambda spec: np.arange(7, 7 + spec.length)
        reply = answered(worker, FIRST, attempt)
        (row,) = store.egress.verify(store.ledger)
        (*_, entry) = store.ledger.entries()
    exact = Site(records.load(peers.stage.records, PLAN.study)).answer(FIRST.query)
    assert draw.call_args.args == (share_spec(FIRST.priced, PLAN.study, 3),)
    assert np.array_equal(peers.unmasked(reply, attempt), exact + np.arange(7, 7 + exact.size))
    assert abs(int(reply.contribution.values[0])) > 2**32, "as large as a mask"
    assert (reply.number, reply.contribution.attempt) == (1, attempt.digest)
    assert (row.kind, row.bytes, row.attempt) == ("count", 8, attempt.digest)
    assert row.masked
    assert not replace(row, attempt="").masked, "whatever its meaning says"
    assert (entry.kind.value, entry.micro_rho, entry.atto_delta) == ("attempt", COST, 1)


def test_repeated_attempt_reuses_the_answer_with_new_noise_and_cost(peers: Peers) -> None:
    with process(peers.stage) as (store, worker):
        with (
            mock.patch.object(
                RecordAnswers, "values", autospec=True, side_effect=RecordAnswers.values
            ) as computed,
            mock.patch.object(
                OwnStudyKey, "secret_with", autospec=True, side_effect=OwnStudyKey.secret_with
            ) as shared,
            mock.patch.object(OsNoise, "draw", side_effect=[np.array([n]) for n in (7, 70, 700)]),
        ):
            assert isinstance(reply_to(worker, FIRST), Ready)
            attempts = [peers.attempt(FIRST, number) for number in (1, 2, 3)]
            replies = [answered(worker, FIRST, attempt) for attempt in attempts]
        hidden = [int(peers.unmasked(*both)[0]) for both in zip(replies, attempts, strict=True)]
        assert (computed.call_count, shared.call_count) == (1, len(OTHERS))
        assert np.diff(hidden).tolist() == [63, 630], "each attempt's share is its own draw"
        assert left(store) == (3 * COST, ["ready", "count", "count", "count"])
        assert row_count(store, "masked_answers") == 1, "what an earlier attempt sent is gone"


def test_time_of_a_noise_share_is_hidden_before_storing(peers: Peers) -> None:
    order: list[str] = []
    with process(peers.stage) as (store, worker):
        retain = mock.patch.object(store.attempts, "save", side_effect=lambda *_: order.append("kept"))
        drawn = mock.patch.object(OsNoise, "draw", autospec=True, side_effect=OsNoise.draw)
        with retain, drawn as draw, mock.patch("eigenveil_client.site.daemon.answers.wait_for_tick") as tick:
            tick.side_effect = lambda: order.append(f"tick after {draw.call_count} draw")
            answered(worker, FIRST, peers.attempt(FIRST))
    assert order == ["tick after 1 draw", "kept"]


@pytest.mark.parametrize("how", ["ended", "withdrawn", "last attempt"])
def test_an_exact_answer_goes_at_once_when_nothing_more_is_made_of_it(peers: Peers, how: str) -> None:
    with process(peers.stage) as (_, worker):
        assert isinstance(reply_to(worker, FIRST), Ready)
        assert list(worker._masked._exact_answers) == [PLAN.digest]
        if how == "last attempt":
            answered(worker, FIRST, peers.attempt(FIRST, MAX_ATTEMPTS))
        elif how == "ended":
            assert worker.work(ended(PLAN)) is None
        else:
            with closing(peers.stage.store()) as other:
                other.withdraw(PLAN.digest, PersonDecision(by="", reason_code=DeclineReason.UNSTATED))
            assert worker.work(pb.NextWorkResponse()) is None
        assert not worker._masked._exact_answers


def test_a_document_with_fewer_attempts_than_a_site_answered_is_no_true_one(peers: Peers) -> None:
    row = {"round": FIRST.round, "query": FIRST.digest, "release": "0" * 64, "present": EVERY, "attempts": 2}
    document = {"plan_digest": PLAN.digest, "rounds": [row]}
    with process(peers.stage) as (store, worker):
        answered(worker, FIRST, peers.attempt(FIRST, 1))
        answered(worker, FIRST, peers.attempt(FIRST, 2))
        check_published(store, document, RELEASE_KEY.public_key().public_bytes_raw(), SITE)
        row["present"] = EVERY[:3]
        with refused(Code.BAD_RELEASE, f"attempt 2 for {', '.join(EVERY)}"):
            check_published(store, document, RELEASE_KEY.public_key().public_bytes_raw(), SITE)
        row["attempts"] = 1
        with refused(Code.BAD_RELEASE, "1 attempts at it are named, and this site answered number 2"):
            check_published(store, document, RELEASE_KEY.public_key().public_bytes_raw(), SITE)


@pytest.mark.parametrize("dead", [False, True], ids=["at once", "after a restart"])
def test_repeated_attempt_gets_the_same_bytes_without_a_charge(peers: Peers, dead: bool) -> None:
    attempt = peers.attempt(FIRST)
    with process(peers.stage) as (store, worker):
        before = answered(worker, FIRST, attempt)
        if not dead:
            again = answered(worker, FIRST, attempt)
    if dead:
        spoil(peers.stage)
        with process(peers.stage) as (_, worker):
            again = answered(worker, FIRST, attempt)
    with process(peers.stage) as (store, _):
        assert again.contribution.digest == before.contribution.digest
        assert left(store) == (COST, ["count", "count"])
        assert len({row.contribution for row in store.egress.rows()}) == 1


Spoilt = Callable[[Peers], Attempt]


def forged(peers: Peers) -> dict[str, str]:
    """A key under the card of a peer, which the coordinator made."""
    public = private_key(peers.keys[SITE], "of the coordinator").public_key().public_bytes_raw()
    made = replace(peers.study_key(OTHERS[0]), agreement=public)
    STUDY_KEYS[made.digest] = made.signed(Ed25519PrivateKey.generate().sign)
    return {OTHERS[0]: made.digest}


OTHER = masked_plan("two")
REFUSED: dict[str, tuple[Spoilt, str]] = {
    "another set": (lambda p: p.attempt(FIRST, 1, EVERY[:3]), "second-set"),
    "without a required site": (lambda p: p.attempt(FIRST, 2, (SITE, *OTHERS[1:])), "requires hospital-b"),
    "fewer than the quorum": (lambda p: p.attempt(FIRST, 2, EVERY[:2]), "needs at least 3"),
    "without this site": (lambda p: p.attempt(FIRST, 2, OTHERS), "not in it"),
    "another key of this site": (lambda p: p.attempt(FIRST, 2, keys={SITE: "0" * 64}), "own key for"),
    "a key that did not come": (lambda p: p.attempt(FIRST, 2, keys={OTHERS[0]: "0" * 64}), "did not come"),
    "a key for another study": (
        lambda p: p.attempt(FIRST, 2, keys={OTHERS[0]: p.study_key(OTHERS[0], OTHER.digest).digest}),
        "of another site or study",
    ),
    "the key of another site": (
        lambda p: p.attempt(FIRST, 2, keys={OTHERS[0]: p.study_key(OTHERS[1]).digest}),
        "of another site or study",
    ),
    "a key that the card did not sign": (lambda p: p.attempt(FIRST, 2, keys=forged(p)), "not signed by"),
    "a site that is not invited": (lambda p: p.attempt(FIRST, 2, keys={"eve": "0" * 64}), "invite eve"),
    "another round": (lambda p: p.attempt(SECOND, 2), "belongs to another query"),
    "another question": (
        lambda p: p.attempt(changed_query(FIRST, micro_rho=FIRST.priced.micro_rho - 1), 2),
        "belongs to another query",
    ),
    "another plan": (lambda p: p.attempt(rehearse(OTHER)[0], 2), "belongs to another query"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_dishonest_attempt_is_refused_without_a_charge(peers: Peers, name: str, caplog: Log) -> None:
    spoilt, words = REFUSED[name]
    with process(peers.stage) as (store, worker):
        answered(worker, FIRST, peers.attempt(FIRST))
        for _ in range(2):
            assert reason_of(reply_to(worker, FIRST, spoilt(peers))) == pb.DECLINE_REASON_PROTOCOL
        assert left(store) == (COST, ["count", "decline", "decline"])
        assert (row_count(store, "attempts"), row_count(store, "masked_answers")) == (1, 1)
        assert row_count(store, "refused_attempts") == ("belongs to another query" not in words)
        assert isinstance(reply_to(worker, FIRST, peers.attempt(FIRST)), MaskedAnswer), (
            "the honest one still stands"
        )
    assert words in caplog.text


def test_both_sets_signed_for_one_attempt_are_stored(peers: Peers) -> None:
    one, other = peers.attempt(FIRST), peers.attempt(FIRST, members=EVERY[:3])
    with process(peers.stage) as (store, worker):
        answered(worker, FIRST, one)
        reply_to(worker, FIRST, other)
        remaining = [
            signed.check(peers.stage.authority.release_public)
            for refused in (False, True)
            for signed in store.attempts.signed(PLAN.digest, refused=refused)
        ]
        result = sets(store, PLAN.digest, RELEASE_KEY.public_key().public_bytes_raw())
        assert sets_text(result).splitlines() == [
            f"round 1, attempt 1, answered: {', '.join(EVERY)}",
            f"round 1, attempt 1, REFUSED: {', '.join(EVERY[:3])}",
        ]
    assert [attempt.digest for attempt in remaining] == [one.digest, other.digest]


def test_a_set_that_another_key_signed_is_refused_and_no_proof(peers: Peers) -> None:
    signed = peers.attempt(FIRST).signed(Ed25519PrivateKey.generate().sign)
    response = assignment(FIRST)
    response.attempt.CopyFrom(pb.SignedAttempt(signed_json=signed.signed_json, signature=signed.signature))
    with process(peers.stage) as (store, worker):
        assert reason_of(worker.work(response)) == pb.DECLINE_REASON_PROTOCOL
        assert (left(store)[0], row_count(store, "refused_attempts")) == (0, 0)


def test_an_earlier_attempt_is_not_answered_any_more(peers: Peers) -> None:
    """Its bytes are gone; made anew they would be a second answer under one number."""
    with process(peers.stage) as (store, worker):
        answered(worker, FIRST, peers.attempt(FIRST, 1))
        answered(worker, FIRST, peers.attempt(FIRST, 2))
        assert isinstance(reply_to(worker, FIRST, peers.attempt(FIRST, 1)), Refusal)
        assert left(store)[0] == 2 * COST


def test_minimum_sites_is_enforced_for_each_attempt(peers: Peers) -> None:
    peers.stage.rule(secrecy=replace(peers.stage.config.policy.secrecy, minimum_sites=3))
    with process(peers.stage) as (_, worker):
        assert isinstance(reply_to(worker, FIRST, peers.attempt(FIRST, 1, EVERY[:3])), MaskedAnswer)
    peers.stage.rule(secrecy=replace(peers.stage.config.policy.secrecy, minimum_sites=4))
    with process(peers.stage) as (store, worker):
        assert reason_of(reply_to(worker, FIRST, peers.attempt(FIRST, 2, EVERY))) == pb.DECLINE_REASON_POLICY
        assert left(store)[0] == COST


def test_no_answer_is_masked_for_an_unconfirmed_card(tmp_path: Path, caplog: Log) -> None:
    peers = Peers(a_stage(tmp_path))
    with process(peers.stage) as (store, worker):
        peers.roster.remove(OTHERS[1])
        peers.roster.import_cards([peers.keys[OTHERS[1]].signed], FEDERATION, replacing=False)
        assert reason_of(reply_to(worker, FIRST, peers.attempt(FIRST))) == pb.DECLINE_REASON_PROTOCOL
        assert left(store) == (0, ["decline"])
    assert "unknown-peer" in caplog.text
    assert "sites=hospital-c" in caplog.text


def test_changed_peer_card_ends_the_process_until_a_person_decides(peers: Peers, caplog: Log) -> None:
    new = keys_of(peers.stage, OTHERS[1], "moved")
    attempt = peers.attempt(FIRST, keys={OTHERS[1]: stated_key(new, PLAN.digest).digest})
    with process(peers.stage) as (store, worker):
        assert isinstance(reply_to(worker, FIRST), Ready)
        with pytest.raises(PeerChanged, match="peers confirm hospital-c"):
            reply_to(worker, FIRST, attempt)
        assert (left(store), row_count(store, "refused_attempts")) == ((0, ["ready"]), 1)
    assert "peer-key-changed" in caplog.text
    assert peers.roster.content().pins[OTHERS[1]].status is PinStatus.CHANGED
    with pytest.raises(RequestError, match="nothing more is sent"):
        peers.roster.check_unchanged()
    confirm(peers.roster, new, peers.keys[SITE], replacing=True)
    with process(peers.stage) as (_, worker):
        assert isinstance(reply_to(worker, FIRST, attempt), MaskedAnswer)


def test_nothing_is_masked_by_a_card_that_a_person_replaces_at_that_moment(peers: Peers) -> None:
    new, real = keys_of(peers.stage, OTHERS[1], "moved"), Roster.mark_changed
    attempt = peers.attempt(FIRST, keys={OTHERS[1]: stated_key(new, PLAN.digest).digest})

    def late(self: Any, name: str, seen_digest: str) -> None:
        confirm(peers.roster, new, peers.keys[SITE], replacing=True)
        real(self, name, seen_digest)

    with process(peers.stage) as (store, worker), mock.patch.object(Roster, "mark_changed", late):
        assert isinstance(reply_to(worker, FIRST, attempt), Refusal)
        assert left(store) == (0, ["decline"])
        assert isinstance(reply_to(worker, FIRST, attempt), MaskedAnswer)


def test_a_set_of_sites_beside_a_study_that_is_not_masked_is_refused(peers: Peers) -> None:
    round_query = rehearse(central := a_plan())[0]
    attempt = peers.attempt(round_query, members=EVERY[:2])
    peers.stage.rule(secrecy=replace(peers.stage.config.policy.secrecy, trust=("central",)))
    with process(peers.stage) as (store, worker):
        refusal = worker.work(assignment(round_query, attempt, peers.stage.signed(central)))
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, left(store)) == (pb.DECLINE_REASON_PROTOCOL, (0, ["decline"]))


@pytest.mark.parametrize("point", ["share-drawn", "answer-masked", "attempt-storing", "attempt-stored"])
def test_a_crash_at_any_step_leaves_one_charge_and_one_answer(peers: Peers, point: str) -> None:
    attempt = peers.attempt(FIRST)
    with process(peers.stage) as (store, worker), killed_at(point):
        reply_to(worker, FIRST, attempt)
    with process(peers.stage) as (store, worker):
        stored = row_count(store, "masked_answers")
        assert (stored, left(store)[0]) == ((1, COST) if point == "attempt-stored" else (0, 0))
        sent = answered(worker, FIRST, attempt)
    with process(peers.stage) as (store, worker):
        assert answered(worker, FIRST, attempt).contribution.digest == sent.contribution.digest
        assert (left(store)[0], len({row.contribution for row in store.egress.rows()})) == (COST, 1)


def script(peers: Peers) -> list[pb.NextWorkResponse]:
    return [
        assignment(FIRST, None, peers.stage.signed(PLAN)), assignment(FIRST, peers.attempt(FIRST, 1)),
        assignment(FIRST, peers.attempt(FIRST, 2)), assignment(SECOND, peers.attempt(SECOND, 1)),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_each_attempt_has_one_answer_and_one_charge(peers: Peers, seed: int) -> None:
    draw = np.random.default_rng(seed)
    sent: dict[tuple[int, int], str] = {}
    for _ in range(3):
        with process(peers.stage) as (store, worker):
            for _ in range(12):
                round_query = QUESTIONS[draw.integers(3)]
                members = [name for name in EVERY if name == SITE or draw.random() < 0.8]
                number = int(draw.integers(1, 5))
                attempt = peers.attempt(round_query, number, members) if len(members) > 1 else None
                reply = reply_to(worker, round_query, attempt)
                assert isinstance(reply, Ready | MaskedAnswer | Refusal)
                if isinstance(reply, MaskedAnswer):
                    place = (round_query.round, reply.number)
                    assert place >= max(sent, default=place)
                    assert sent.setdefault(place, reply.contribution.digest) == reply.contribution.digest
            assert left(store)[0] == sum(QUESTIONS[round].priced.micro_rho for round, _ in sent)
            assert row_count(store, "attempts") == len(sent)
            store.egress.verify(store.ledger)
    assert sent


async def test_ready_and_masked_answers_carry_the_next_request(peers: Peers, pauses: list[int]) -> None:
    coordinator = Coordinator(work=script(peers), lose=["Ready"])
    async with peers.stage.serving(coordinator), peers.stage.daemon():
        await until(lambda: len(coordinator.contributions) == 3 and len(coordinator.requests) == 5)
    ready, again = coordinator.readies
    assert ready == again, "the answer to the first was lost"
    assert (ready.round, ready.query_digest.hex()) == (0, FIRST.digest)
    assert StudyKey.read(ready.study_key.signed_json) == peers.study_key(SITE)
    sent = coordinator.contributions
    assert [ready.next, *(one.next for one in sent)] == coordinator.requests[1:]
    result = [(one.round, one.attempt) for request in coordinator.requests[1:] for one in request.answered]
    assert result == [(0, 0), (0, 1), (0, 2), (1, 1)]
    numbers = [(FIRST, 1), (FIRST, 2), (SECOND, 1)]
    assert [one.attempt_digest.hex() for one in sent] == [peers.attempt(*one).digest for one in numbers]
    assert pauses == [], "nothing of that is odd"


@pytest.mark.parametrize("point", ["ready-storing", "ready-stored", "ready-sending", "ready-sent"])
async def test_a_crash_around_ready_costs_nothing_and_ready_is_resent(peers: Peers, point: str) -> None:
    coordinator = Coordinator(work=[script(peers)[0], script(peers)[0], script(peers)[1]])
    async with peers.stage.serving(coordinator):
        with closing(peers.stage.store()) as store, killed_at(point, any_thread=True):
            await asyncio.wait_for(peers.stage.make_daemon(store).run(), 100)
        del coordinator.work[:-2]
        async with peers.stage.daemon() as store:
            await until(lambda: len(coordinator.contributions) == 1)
            assert left(store)[0] == FIRST.priced.micro_rho

"""[P33] What a site keeps of attempts: one answer for each, while it may be asked for, and all proof."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil.aggregation import Contribution
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.numerics.encoding import frozen, to_memoryview
from eigenveil.planning.choose import dearest
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil_client.site.commands import evidence
from eigenveil_client.site.daemon.answers import MaskedAnswer
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.policy_sections import YearlyLimit
from eigenveil_client.site.state.coordinator_statements import (
    MOST_REFUSED_ATTEMPTS,
    PIECE_BYTES,
    Attempts,
    VerifiedAttempt,
)
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.masking import (
    EVERY,
    PLAN,
    QUESTIONS,
    Peers,
    answered,
    left,
    process,
    reply_to,
    row_count,
)
from tests.client.site.stated import RELEASE_KEY, work
from tests.client.site.support import SITE
from tests.support import changed_query, refused

FIRST, SECOND, *_ = QUESTIONS


@pytest.fixture
def store(peers: Peers) -> Iterator[SiteStore]:
    with process(peers.stage) as (opened, _):
        yield opened


def save(store: SiteStore, attempt: Attempt, values: list[int]) -> Contribution:
    sent = Contribution(
        plan_digest=attempt.plan, round=attempt.round, query=attempt.query, site=SITE,
        values=frozen(values), attempt=attempt.digest,
    )  # fmt: skip
    with store.database.transaction() as change:
        store.attempts.save(VerifiedAttempt(attempt, attempt.signed(RELEASE_KEY.sign)), sent, change)
    return sent


@pytest.mark.parametrize("size", [PIECE_BYTES // 8, PIECE_BYTES // 8 + 1])
def test_an_answer_of_any_length_is_read_as_it_was_sent(peers: Peers, store: SiteStore, size: int) -> None:
    attempt = peers.attempt(FIRST)
    sent = save(store, attempt, np.arange(-5, size - 5).tolist())
    found = store.attempts.sent(attempt, SITE)
    assert found is not None
    assert found.digest == sent.digest
    assert np.array_equal(found.values, sent.values)
    assert row_count(store, "masked_answers") == -(-8 * size // PIECE_BYTES)


def test_no_attempt_number_is_answered_twice(peers: Peers, store: SiteStore) -> None:
    save(store, peers.attempt(FIRST), [1])
    for recompute_answer in (peers.attempt(FIRST), peers.attempt(FIRST, members=EVERY[:3])):
        with pytest.raises(InternalError, match="UNIQUE"):
            save(store, recompute_answer, [2])
    found = store.attempts.sent(peers.attempt(FIRST), SITE)
    assert found is not None
    assert found.values.tolist() == [1]


@pytest.mark.parametrize("change", ["UPDATE attempts SET number = 2", "DELETE FROM attempts"])
def test_what_was_answered_never_changes(peers: Peers, store: SiteStore, change: str) -> None:
    save(store, peers.attempt(FIRST), [1])
    with pytest.raises(InternalError, match="an answered attempt"), store.database.transaction() as changing:
        changing.execute(change)


@pytest.mark.parametrize("later", [(FIRST, 2), (SECOND, 1)], ids=["attempt", "round"])
def test_later_answer_deletes_only_bytes(peers: Peers, store: SiteStore, later: tuple[object, int]) -> None:
    save(store, peers.attempt(FIRST), [1])
    save(store, peers.attempt(*later), [2])  # type: ignore[arg-type]
    assert store.attempts.sent(peers.attempt(FIRST), SITE) is None
    assert (row_count(store, "masked_answers"), len(store.attempts.signed(PLAN.digest))) == (1, 2)


def test_bytes_that_were_changed_are_never_sent(peers: Peers, store: SiteStore) -> None:
    save(store, peers.attempt(FIRST), [1, 2, 3])
    for damaged in (bytes(24), bytes(8), bytes(80)):
        with store.database.transaction() as change:
            change.execute('UPDATE masked_answers SET "values" = ?', (damaged,))
        with pytest.raises(InternalError, match="was changed here"):
            store.attempts.sent(peers.attempt(FIRST), SITE)


def test_changed_statement_is_found_when_the_state_opens(peers: Peers, store: SiteStore) -> None:
    save(store, peers.attempt(FIRST), [1])
    store.check_whole()
    with store.database.transaction() as change:
        change.execute("DROP TRIGGER an_answered_attempt_never_changes")
        change.execute("UPDATE attempts SET signed_json = ?", (peers.attempt(SECOND).signed_json,))
    with pytest.raises(InternalError, match="an attempt at a round"):
        store.check_whole()


def test_refused_attempts_are_bounded_and_distinct(peers: Peers, store: SiteStore) -> None:
    attempts = Attempts(store.database)
    for keys in ({}, {}, *({"eve": f"{number:064x}"} for number in range(9))):
        attempt = peers.attempt(FIRST, keys=keys)
        attempts.refuse(VerifiedAttempt(attempt, attempt.signed(RELEASE_KEY.sign)))
    assert row_count(store, "refused_attempts") == MOST_REFUSED_ATTEMPTS


def test_the_row_of_each_attempt_is_missed_if_it_is_cut_off(peers: Peers) -> None:
    with process(peers.stage) as (store, worker):
        for number in (1, 2):
            answered(worker, FIRST, peers.attempt(FIRST, number))
        assert len(store.egress.verify(store.ledger)) == 2
        with store.database.transaction() as change:
            change.execute("DROP TRIGGER egress_is_append_only_delete")
            change.execute('DELETE FROM egress WHERE "index" = 1')
        with pytest.raises(InternalError, match="rows are missing at its end"):
            store.egress.verify(store.ledger)


def test_attempts_count_in_the_year_and_their_rest_is_free_when_the_study_ends(peers: Peers) -> None:
    yearly = YearlyLimit(year=peers.stage.config.policy.year, budget=peers.stage.config.policy.budget)
    with process(peers.stage) as (store, worker):
        assert store.this_year(yearly) == PLAN.cost.micro_rho == PLAN.micro_rho + 2 * dearest(PLAN)
        for number in (1, 2):
            answered(worker, FIRST, peers.attempt(FIRST, number))
        assert store.this_year(yearly) == PLAN.cost.micro_rho
        store.end(PLAN.digest)
        assert store.this_year(yearly) == store.ledger.ledger.spent.micro_rho == 2 * FIRST.priced.micro_rho
        shown = evidence.ledger(store, peers.stage.config)
        assert [row["kind"] for row in shown["entries"]].count("attempt") == 2


def test_a_year_has_room_for_every_attempt_or_the_study_is_not_agreed_to(peers: Peers) -> None:
    peers.stage.rule(max_epsilon_per_year=0.9)
    yearly = peers.stage.config.policy.yearly
    assert yearly is not None
    with closing(peers.stage.store()) as store:
        assert PLAN.micro_rho < store.left_this_year(PLAN, yearly) < PLAN.cost.micro_rho
        worker = peers.stage.worker(store)
        worker.work(work(None, peers.stage.signed(PLAN)))
        assert worker.consent().accepted == {}


def test_a_masked_answer_cannot_be_recomputed(peers: Peers) -> None:
    with process(peers.stage) as (store, worker):
        reply_to(worker, FIRST)
        answered(worker, FIRST, peers.attempt(FIRST))
        assert left(store)[1] == ["ready", "count"]
        ready, masked = store.egress.rows()
        for row, words in ((ready, "sent no numbers"), (masked, "masked answer, which cannot be computed")):
            with pytest.raises(RequestError, match=words):
                evidence.recompute_answer(store, row, make_engine(peers.stage.config))


def test_after_a_withdrawal_by_another_process_nothing_is_written_down_as_leaving(peers: Peers) -> None:
    """It is not seen before the transaction: neither word costs anything, so no ledger refuses it either."""
    with process(peers.stage) as (store, worker):
        reply = answered(worker, FIRST, peers.attempt(FIRST))
        with closing(peers.stage.store()) as other:
            other.withdraw(PLAN.digest, PersonDecision(by="", reason_code=DeclineReason.UNSTATED))
        with refused(Code.POLICY, "is withdrawn here"):
            store.outgoing.ready(SECOND, ())
        with refused(Code.POLICY, "is withdrawn here"):
            store.outgoing.resend(FIRST, reply.contribution, ())
        assert left(store) == (FIRST.priced.micro_rho, ["count"])


@pytest.mark.parametrize(("change", "code", "words"), [
    ({"distribution": NoiseDistribution.LAPLACE}, Code.BUDGET, "not Gaussian"),
    ({"micro_rho": FIRST.priced.micro_rho - 1}, Code.PROTOCOL, "charged for another query"),
], ids=["other noise", "another question"])  # fmt: skip
def test_ledger_refuses_attempt_of_other_noise_or_query(
    peers: Peers, change: dict[str, Any], code: Code, words: str
) -> None:
    with process(peers.stage) as (store, worker):
        round_query, paid = changed_query(FIRST, **change), 0
        if code is Code.PROTOCOL:
            answered(worker, FIRST, peers.attempt(FIRST))
            paid = FIRST.priced.micro_rho
        attempt = peers.attempt(round_query, 2)
        proved = VerifiedAttempt(attempt, attempt.signed(RELEASE_KEY.sign))
        answer = Contribution.to(round_query, SITE, frozen([1]), attempt.digest)
        with refused(code, words):
            store.outgoing.masked(PLAN, round_query, proved, answer, (), lambda: None)
        assert (left(store)[0], row_count(store, "attempts")) == (paid, int(paid > 0))


def test_exact_answer_of_a_masked_study_cannot_leave(peers: Peers) -> None:
    with process(peers.stage) as (store, worker):
        reply = answered(worker, FIRST, peers.attempt(FIRST))
        with pytest.raises(InternalError, match="exact answer of a masked study"):
            store.outgoing.answer(PLAN, FIRST, to_memoryview(reply.contribution.values), ())
        with pytest.raises(InternalError, match="without masks"):
            MaskedAnswer(contribution=replace(reply.contribution, attempt=""), number=1)

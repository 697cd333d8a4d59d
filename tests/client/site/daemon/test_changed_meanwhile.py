"""[R31] [R29] What people or time change while an answer is computed reaches that answer: none leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Reply, SiteWorker
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import PLAN as MASKED_PLAN
from tests.client.site.masking import Peers, assignment
from tests.client.site.stated import work
from tests.client.site.support import Stage, a_plan, a_stage
from tests.support import signed_by_analyst

NOW = 1_800_000_000
UNTIL = NOW + 3600
PLAN = a_plan(submission="one")
Change = Callable[[Stage, SiteStore], None]


def analyst_removed(stage: Stage, _: SiteStore) -> None:
    Roster(ANALYSTS, stage.config.identity).remove("ada")


def analyst_contradicted(stage: Stage, _: SiteStore) -> None:
    Roster(ANALYSTS, stage.config.identity).mark_changed("ada", "00" * 32)


def signature_ended(_: Stage, store: SiteStore) -> None:
    store._clock = lambda: UNTIL


CHANGES = pytest.mark.parametrize("change", [analyst_removed, analyst_contradicted, signature_ended])


@contextmanager
def at(point: str, stage: Stage, store: SiteStore, change: Change) -> Iterator[None]:
    """`change` is made when the failpoint `point` is passed."""
    arm(point, lambda: change(stage, store))
    try:
        yield
    finally:
        disarm()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(tmp_path)
    stage.know_analyst()
    return stage


def asked(stage: Stage, worker: SiteWorker) -> Reply | None:
    plan = stage.authorized(PLAN, signed_by_analyst(PLAN, expires=UNTIL))
    return worker.work(work(rehearse(PLAN)[0], plan))


def nothing_left(store: SiteStore, reply: Reply | None) -> None:
    assert isinstance(reply, Refusal)
    assert reply.reason == pb.DECLINE_REASON_POLICY
    assert [row.kind for row in store.egress.rows() if row.kind != "ready"] == ["decline"]
    assert store.ledger.ledger.spent.micro_rho == 0


@CHANGES
def test_an_exact_answer_is_not_committed_after_its_analyst_s_key_or_signature_is_void(
    stage: Stage, change: Change
) -> None:
    with closing(stage.store()) as store, at("answer-computed", stage, store, change):
        nothing_left(store, asked(stage, stage.worker(store)))


@CHANGES
def test_a_committed_answer_is_held_back_once_the_signature_is_void(
    stage: Stage, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(stage.store()) as store:
        worker = stage.worker(store)
        answer = asked(stage, worker)
        assert isinstance(answer, Contribution)
        assert worker.may_send(answer)
        assert "reply-held-back" not in caplog.text
        change(stage, store)
        assert not worker.may_send(answer)
    why = Code.AUTHORIZATION_EXPIRED if change is signature_ended else Code.UNCONFIRMED
    (line,) = [one.getMessage() for one in caplog.records if "reply-held-back" in one.getMessage()]
    assert f"code={why.value}" in line


@pytest.fixture
def masked(stage: Stage) -> Iterator[tuple[Peers, SiteStore, SiteWorker]]:
    """A site that agreed to a masked study, signed, and is ready for its first round."""
    peers, signed = Peers(stage), signed_by_analyst(MASKED_PLAN, expires=UNTIL)
    with closing(stage.store()) as store:
        worker = stage.worker(store)
        assert worker.work(work(None, stage.authorized(MASKED_PLAN, signed))) is None
        yield peers, store, worker


@CHANGES
def test_ready_is_not_said_after_the_signature_is_void(
    masked: tuple[Peers, SiteStore, SiteWorker], change: Change
) -> None:
    peers, store, worker = masked
    with at("records-loaded", peers.stage, store, change):
        nothing_left(store, worker.work(assignment(rehearse(MASKED_PLAN)[0])))


@CHANGES
def test_a_masked_answer_is_not_committed_after_the_signature_is_void(
    masked: tuple[Peers, SiteStore, SiteWorker], change: Change
) -> None:
    peers, store, worker = masked
    first = rehearse(MASKED_PLAN)[0]
    assert isinstance(worker.work(assignment(first)), Ready)
    with at("answer-masked", peers.stage, store, change):
        nothing_left(store, worker.work(assignment(first, peers.attempt(first))))


@CHANGES
def test_a_masked_answer_that_was_charged_does_not_leave_again_after_that(
    masked: tuple[Peers, SiteStore, SiteWorker], change: Change
) -> None:
    peers, store, worker = masked
    first = rehearse(MASKED_PLAN)[0]
    answer = worker.work(assignment(first, peers.attempt(first)))
    assert isinstance(answer, MaskedAnswer)
    assert worker.may_send(answer)
    change(peers.stage, store)
    assert not worker.may_send(answer)
    assert isinstance(worker.work(assignment(first, peers.attempt(first))), Refusal)


@pytest.mark.parametrize("point", ["records-loaded", "share-drawn", "answer-masked"])
def test_no_answer_is_masked_for_a_peer_whose_card_was_removed_while_it_was_computed(
    masked: tuple[Peers, SiteStore, SiteWorker], point: str
) -> None:
    peers, store, worker = masked
    first = rehearse(MASKED_PLAN)[0]

    def removed(_: Stage, __: SiteStore) -> None:
        peers.roster.remove("hospital-b")

    with at(point, peers.stage, store, removed):
        reply = worker.work(assignment(first, peers.attempt(first)))
    assert isinstance(reply, Refusal)
    assert store.ledger.ledger.spent.micro_rho == 0

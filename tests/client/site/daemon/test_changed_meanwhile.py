"""[R31] [R29] What people or time change while an answer is computed reaches that answer: none leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.study_authorization import MAX_AUTHORIZATION_SECONDS
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Postponed, Reply, SiteWorker
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import PLAN as MASKED_PLAN
from tests.client.site.masking import Peers, assignment
from tests.client.site.stated import work
from tests.client.site.support import Coordinator, Log, Stage, a_plan, a_stage, at_failpoint, until
from tests.support import signed_by_analyst

NOW = 1_800_000_000
UNTIL = NOW + 3600
PLAN = a_plan(submission="one")


def analysts(stage: Stage) -> Roster:  # type: ignore[type-arg]
    return Roster(ANALYSTS, stage.config.identity)


CHANGES: dict[str, Callable[[Stage, SiteStore], None]] = {
    "analyst removed": lambda stage, _: analysts(stage).remove("ada"),
    "analyst contradicted": lambda stage, _: analysts(stage).mark_changed("ada", "00" * 32),
    "signature ended": lambda _, store: setattr(store, "_clock", lambda: UNTIL),
}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(tmp_path)
    stage.know_analyst()
    return stage


def reply_to(stage: Stage, worker: SiteWorker) -> Reply | None:
    plan = stage.authorized(PLAN, signed_by_analyst(PLAN, expires=UNTIL))
    return worker.work(work(rehearse(PLAN)[0], plan))


def nothing_left(store: SiteStore, reply: Reply | None) -> None:
    assert isinstance(reply, Refusal)
    assert reply.reason == pb.DECLINE_REASON_POLICY
    assert [row.kind for row in store.egress.rows() if row.kind != "ready"] == ["decline"]
    assert store.ledger.ledger.spent.micro_rho == 0


@pytest.mark.parametrize("change", CHANGES)
def test_exact_answer_is_not_committed_once_its_signature_is_void(stage: Stage, change: str) -> None:
    with (
        closing(stage.store()) as store,
        at_failpoint("answer-computed", lambda: CHANGES[change](stage, store)),
    ):
        nothing_left(store, reply_to(stage, stage.worker(store)))


@pytest.mark.parametrize("change", CHANGES)
def test_committed_answer_is_not_sent_once_void(stage: Stage, change: str, caplog: Log) -> None:
    with closing(stage.store()) as store:
        worker = stage.worker(store)
        answer = reply_to(stage, worker)
        assert isinstance(answer, Contribution)
        assert worker.may_send(answer)
        assert "reply-held-back" not in caplog.text
        CHANGES[change](stage, store)
        assert not worker.may_send(answer)
    why = Code.AUTHORIZATION_EXPIRED if change == "signature ended" else Code.UNCONFIRMED
    (line,) = [one.getMessage() for one in caplog.records if "reply-held-back" in one.getMessage()]
    assert f"code={why.value}" in line


@pytest.fixture
def masked(stage: Stage) -> Iterator[tuple[Peers, SiteStore, SiteWorker]]:
    peers, signed = Peers(stage), signed_by_analyst(MASKED_PLAN, expires=UNTIL)
    with closing(stage.store()) as store:
        worker = stage.worker(store)
        assert worker.work(work(None, stage.authorized(MASKED_PLAN, signed))) is None
        yield peers, store, worker


@pytest.mark.parametrize("change", CHANGES)
def test_ready_is_not_sent_once_void(masked: tuple[Peers, SiteStore, SiteWorker], change: str) -> None:
    peers, store, worker = masked
    with at_failpoint("records-loaded", lambda: CHANGES[change](peers.stage, store)):
        nothing_left(store, worker.work(assignment(rehearse(MASKED_PLAN)[0])))


@pytest.mark.parametrize("change", CHANGES)
def test_a_masked_answer_is_not_committed_once_void(
    masked: tuple[Peers, SiteStore, SiteWorker], change: str
) -> None:
    peers, store, worker = masked
    first = rehearse(MASKED_PLAN)[0]
    assert isinstance(worker.work(assignment(first)), Ready)
    with at_failpoint("answer-masked", lambda: CHANGES[change](peers.stage, store)):
        nothing_left(store, worker.work(assignment(first, peers.attempt(first))))


@pytest.mark.parametrize("change", CHANGES)
def test_a_charged_answer_is_not_resent_once_void(
    masked: tuple[Peers, SiteStore, SiteWorker], change: str
) -> None:
    peers, store, worker = masked
    first = rehearse(MASKED_PLAN)[0]
    answer = worker.work(assignment(first, peers.attempt(first)))
    assert isinstance(answer, MaskedAnswer)
    assert worker.may_send(answer)
    CHANGES[change](peers.stage, store)
    assert not worker.may_send(answer)
    assert isinstance(worker.work(assignment(first, peers.attempt(first))), Refusal)


@pytest.mark.parametrize("point", ["records-loaded", "share-drawn", "answer-masked"])
def test_no_answer_is_masked_for_a_removed_peer(
    masked: tuple[Peers, SiteStore, SiteWorker], point: str
) -> None:
    peers, store, worker = masked
    first = rehearse(MASKED_PLAN)[0]
    with at_failpoint(point, lambda: peers.roster.remove("hospital-b")):
        reply = worker.work(assignment(first, peers.attempt(first)))
    assert isinstance(reply, Refusal)
    assert store.ledger.ledger.spent.micro_rho == 0


FAR = NOW + 5 * 365 * 86_400
OTHER = a_plan(submission="other")


def reply_until(stage: Stage, store: SiteStore, expires: int) -> Reply | None:
    sent = stage.authorized(PLAN, signed_by_analyst(PLAN, expires=expires))
    return stage.worker(store).work(work(rehearse(PLAN)[0], sent))


def put_off(store: SiteStore, reply: Reply | None) -> None:
    assert isinstance(reply, Postponed)
    assert (store.declined.get(PLAN.digest), store.proofs.all(), store.egress.rows()) == (None, [], [])


def write_ahead(stage: Stage) -> None:
    with closing(stage.store()) as store:
        store._clock = lambda: FAR
        other = a_plan(submission="another", analyst="bob")
        assert isinstance(stage.worker(store).work(work(rehearse(other)[0], stage.signed(other))), Refusal)


def test_signatures_hold_again_once_a_fast_clock_is_right(stage: Stage) -> None:
    write_ahead(stage)
    with stage.process() as (store, _):
        assert store.now() == FAR, "years and approvals go by the latest time, signatures by the clock"
        assert isinstance(reply_until(stage, store, NOW + 3600), Contribution)


def test_signature_too_long_by_a_slow_clock_is_checked_again(stage: Stage, store: SiteStore) -> None:
    most = NOW + MAX_AUTHORIZATION_SECONDS
    store._clock = lambda: NOW - 7200
    put_off(store, reply_until(stage, store, most))
    store._clock = lambda: NOW
    assert isinstance(reply_until(stage, store, most), Contribution)


@pytest.mark.parametrize("approval", Approval)
def test_signature_expired_by_a_fast_clock_is_checked_again(stage: Stage, approval: Approval) -> None:
    stage.rule(approval=approval)
    with closing(stage.store()) as store:
        store._clock = lambda: NOW + 8 * 86_400
        put_off(store, reply_until(stage, store, NOW + 7 * 86_400))
        store._clock = lambda: NOW
        reply = reply_until(stage, store, NOW + 7 * 86_400)
        assert isinstance(reply, Contribution) if approval is Approval.AUTO else reply is None
        assert store.studies.find(PLAN.digest)


async def test_postponed_study_is_not_declined_and_blocks_no_other(stage: Stage) -> None:
    """The coordinator would keep a decline for good, and offers first what is not named as answered."""
    late, other = (
        stage.authorized(plan, signed_by_analyst(plan, expires=expires))
        for plan, expires in ((PLAN, NOW - 1), (OTHER, NOW + 3600))
    )
    coordinator = Coordinator(work=[work(rehearse(PLAN)[0], late), work(rehearse(OTHER)[0], other)])
    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: coordinator.contributions)
    assert coordinator.declines == []
    assert [one.plan_digest.hex() for one in coordinator.requests[1].answered] == [PLAN.digest]
    assert [one.plan_digest.hex() for one in coordinator.contributions] == [OTHER.digest]

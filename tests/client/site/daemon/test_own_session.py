"""[P25] A site follows a study by itself, over restarts and between machines, and holds proof."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenveil.accounting.budget import NoiseRule
from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import canonical, frozen
from eigenveil.planning.choose import rehearse, rehearse_with_releases
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery, is_same_query
from eigenveil.protocol.rounds import Release, SignedRound
from eigenveil.protocol.wire import query_from_proto, query_to_proto, round_to_proto
from eigenveil.queries import ClippedSum, Gram, RadiusSearch, RowNorms
from eigenveil.queries.limits import least_row_radius
from eigenveil.reporting.document import RoundRecord, release_document, signed_release
from eigenveil.reporting.result import result_of
from eigenveil.reporting.verify import ReplayReport, RoundLog, SignedRelease, load_release, verify_release
from eigenveil.session import Session
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import MAX_ROUNDS
from eigenveil.study.study import Column, Federation, Scaling
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.round_checks import SessionReplica
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.stated import RELEASE_KEY, sealed, state, work
from tests.client.site.support import SITE, Coordinator, Log, Stage, a_plan, a_stage, a_study, until
from tests.support import changed_query, refused
from tests.torture.peers.steering import lied

PLAN = a_plan(a_study(federation=Federation(sites=(SITE, "hospital-b"), quorum=2)))


def release_of(round_query: RoundQuery, values: list[int], sigma: float = 1.0) -> Release:
    return Release(
        round=round_query.round, query=round_query.digest, values=frozen(values), sigma=sigma,
        micro_rho=round_query.cost.micro_rho, atto_delta=0, present=(SITE, "hospital-b"),
    )  # fmt: skip


def followed(stage: Stage, plan: Plan, releases: tuple[Release, ...]) -> list[object]:
    store = stage.store()
    worker, session = stage.worker(store), Session(plan)
    replies: list[object] = []
    for release in releases:
        query = session.pending
        assert query is not None
        replies.append(worker.work(work(query, stage.signed(plan), session.releases)))
        session.feed(release)
    store.close()
    return replies


def published(releases: tuple[Release, ...], folder: Path) -> Path:
    session = Session.replay(PLAN, releases)
    rounds = [RoundRecord(kind="?", absent={}) for _ in releases]
    result = result_of(PLAN, session.result)
    document = release_document(PLAN, result, releases, rounds=rounds, private=True)
    key = RELEASE_KEY.public_key().public_bytes_raw()
    path = folder / "release.zip"
    path.write_bytes(signed_release(document, result, sign=RELEASE_KEY.sign, public_key=key))
    return path


def log_of(config: Path, document: Path) -> tuple[SignedRelease, bytes]:
    out = document.with_name("rounds.json")
    assert site(config, "ledger", "rounds", "--study", PLAN.digest[:12], "--out", out).code == 0
    return load_release(document.read_bytes()), out.read_bytes()


def check(release: SignedRelease, log: bytes, **changes: Any) -> ReplayReport:
    found = verify_release(replace(release, document=release.document | changes), release.public_key, log)
    assert found is not None
    return found


HONEST = tuple(release for _, release in rehearse_with_releases(PLAN))


def test_signed_lie_about_a_release_is_found_in_the_document(stage: Stage, tmp_path: Path) -> None:
    """A coordinator states a mean that nobody has, to put the centre onto a person, and publishes another."""
    step = next(round_query for round_query in rehearse(PLAN) if isinstance(round_query.query, ClippedSum))
    steered = lied(HONEST, step.round, frozen([2**24, -(2**24), 0]))[: step.round + 1]
    session = Session.replay(PLAN, steered)
    assert isinstance(session.pending, RoundQuery)
    assert isinstance(session.pending.query, RowNorms)
    lies = (*steered, release_of(session.pending, [0] * session.pending.query.length))
    assert all(isinstance(reply, Contribution) for reply in followed(stage, PLAN, lies))
    config, document = written(stage), published(HONEST, tmp_path)
    ran = site(config, "ledger", "verify", "--release", document, "--json")
    assert (ran.code, f"round {step.round + 1}: the coordinator signed release" in ran.out) == (13, True)
    with pytest.raises(RequestError, match="contradict each other"):
        check(*log_of(config, document))


def test_an_honest_document_agrees_with_what_the_site_holds(stage: Stage, tmp_path: Path) -> None:
    assert all(isinstance(reply, Contribution) for reply in followed(stage, PLAN, HONEST))
    config, document = written(stage), published(HONEST, tmp_path)
    assert site(config, "ledger", "verify", "--release", document).code == 0
    found = check(*log_of(config, document))
    assert (found.rounds, found.result) == (found.of - 1, False)


@pytest.mark.parametrize("name", ["sigma", "present", "micro_rho"])
def test_a_document_that_misstates_a_round_does_not_follow(stage: Stage, tmp_path: Path, name: str) -> None:
    followed(stage, PLAN, HONEST)
    release, log = log_of(written(stage), published(HONEST, tmp_path))
    release.document["rounds"][0][name] = [SITE] if name == "present" else 7
    with pytest.raises(RequestError, match="its row of round 1 differs from what was signed"):
        check(release, log)


def test_unknown_rounds_and_an_empty_log_prove_nothing(stage: Stage, tmp_path: Path) -> None:
    followed(stage, PLAN, HONEST)
    release, _ = log_of(written(stage), published(HONEST, tmp_path))
    round_query = rehearse(PLAN)
    log = RoundLog(plan=PLAN.digest, messages=tuple(sealed(query, HONEST) for query in round_query)).to_json()
    assert check(release, log).result
    rounds, result = release.document["rounds"], release.result
    with pytest.raises(RequestError, match="and the study"):
        check(release, log, rounds=[*rounds, {**rounds[-1], "round": len(round_query)}])
    tiny = replace(result, explained_variance=2 * result.explained_variance)
    with pytest.raises(RequestError, match="not the one that these releases give"):
        check(replace(release, result=tiny), log)
    with pytest.raises(RequestError, match="proves nothing"):
        check(release, RoundLog(plan=PLAN.digest, messages=()).to_json())


ENDLESS: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    "releases of this round": (1, lambda _: {}),
    "releases of a later round": (3, lambda _: {}),
    "rounds of other plans": (1, lambda value: {"plan": f"{value:064x}"}),
    "rounds that no plan has": (1, lambda value: {"round": MAX_ROUNDS + value}),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_refused_statements_fill_no_disk_and_block_nothing(stage: Stage, name: str) -> None:
    round, changes = ENDLESS[name]
    store = stage.store()
    worker = stage.worker(store)
    worker.work(work(rehearse(PLAN)[0], stage.signed(PLAN)))
    for value in range(30):
        response = work(rehearse(PLAN)[1])
        response.release.CopyFrom(sealed(rehearse(PLAN)[round], lied(HONEST, round, frozen([value] * 5))))
        response.release.values = bytes(2**20)
        stated = SignedRound(signed_json=response.release.signed_round.signed_json, signature=b"").read()
        signed = replace(stated, **changes(value)).signed(RELEASE_KEY.sign)
        response.release.signed_round.CopyFrom(
            pb.SignedRound(signed_json=signed.signed_json, signature=signed.signature)
        )
        assert isinstance(worker.work(response), Refusal)
    remaining = [len(row["message"]) for row in store.database.rows("SELECT message FROM rounds")]
    assert (len(remaining) < 10, sum(remaining) < 10_000) == (True, True)
    store.close()
    for query in rehearse(PLAN):
        store = stage.store()
        assert isinstance(stage.worker(store).work(work(query)), Contribution), query.round
        store.close()


def test_a_release_that_leads_nowhere_is_a_breach_and_the_site_goes_on(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, algorithms=("adaptive-cov",), noise=NoiseRule.ANY)
    plan = a_plan(a_study(algorithm=Algorithm.ADAPTIVE_COV, federation=PLAN.study.federation))
    honest = tuple(release for _, release in rehearse_with_releases(plan))
    search = next(
        round_query.round for round_query in rehearse(plan) if isinstance(round_query.query, RadiusSearch)
    )
    store = stage.store()
    worker = stage.worker(store)
    for round_query in rehearse(plan)[: search + 1]:
        assert isinstance(worker.work(work(round_query, stage.signed(plan))), Contribution)
    absurd = lied(honest, search, frozen([10**6]))  # the number of an edge that is none
    reply = worker.work(work(rehearse(plan)[search + 1], releases=absurd))
    assert isinstance(reply, Refusal)
    assert reply.reason == pb.DECLINE_REASON_PROTOCOL
    assert isinstance(worker.work(work(rehearse(plan)[search + 1])), Contribution)
    store.close()


async def test_a_daemon_outlives_rounds_that_come_in_impossible_pieces(stage: Stage) -> None:
    class Liar(Coordinator):
        async def GetRound(self, request: pb.GetRoundRequest, context: object) -> pb.GetRoundResponse:
            self.lose.append("told")
            return pb.GetRoundResponse(release=pb.SealedRound(values=bytes(8)), total_bytes=2**60)

    coordinator = Liar(work=[work(rehearse(PLAN)[round], stage.signed(PLAN)) for round in (0, 2, 2, 1)])
    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.contributions) == 2)
        assert coordinator.lose == ["told"] * 2


def test_a_plan_of_another_revision_is_refused_by_name(stage: Stage, caplog: Log) -> None:
    signed = stage.authority.sign(canonical({**json.loads(PLAN.to_json()), "revision": 99}))
    store = stage.store()
    assert isinstance(stage.worker(store).work(work(rehearse(PLAN)[0], signed)), Refusal)
    store.close()
    assert "code=version" in caplog.text
    assert "revision 99 of gauss-cov" in caplog.text


# ---------------------------------------------------------------- two machines

ALGORITHMS = (
    Algorithm.AUTO, Algorithm.REFINED_COV, Algorithm.REFINED_PCA, Algorithm.GAUSS_COV, Algorithm.DP_PCA,
    Algorithm.NOISY_POWER, Algorithm.PRIVATE_OJA,
)  # fmt: skip
KERNELS = ("Haswell", "Nehalem")
COLUMNS = tuple(Column(name=f"c{i}", unit="", lower=0.0, upper=1.0) for i in range(30))


def questions() -> None:
    """Run by a process with its own BLAS: what is asked after releases that are the same for all."""
    study = a_study(components=2, epsilon=8.0, columns=COLUMNS, scaling=Scaling.BOUNDS)
    refined = a_plan(study.with_algorithm(Algorithm.REFINED_COV))
    standard = replace(refined, study=replace(refined.study, scaling=Scaling.STANDARD))
    plans = [a_plan(study.with_algorithm(algorithm)) for algorithm in ALGORITHMS]
    for plan in [*plans, replace(refined, revision=2), standard]:
        random, session = np.random.default_rng(5), Session(plan)
        while (round_query := session.pending) is not None and round_query.round < 30:
            sys.stdout.write(query_to_proto(round_query).SerializeToString().hex() + "\n")
            size = getattr(round_query.query, "released", round_query.query.length)
            found, sigma = random.integers(0, 10**6, size), 1.0
            # Two variances stand out, and all others hide in the noise.
            if isinstance(round_query.query, Gram):
                found, sigma = np.rint(1e6 * random.standard_normal(size)).astype(np.int64), 1e6
                found[:2] += 10**8
            session.feed(release_of(round_query, found.tolist(), sigma))


def queries_with(kernel: str) -> list[RoundQuery]:
    run = "from tests.client.site.daemon.test_own_session import questions; questions()"
    done = subprocess.run(
        [sys.executable, "-c", run], env=os.environ | {"OPENBLAS_CORETYPE": kernel},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [query_from_proto(pb.Query.FromString(bytes.fromhex(line))) for line in done.stdout.split()]


def test_two_builds_of_blas_make_the_same_queries() -> None:
    one, other = map(queries_with, KERNELS)
    assert len(one) == len(other) > 60
    assert all(is_same_query(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def moved(round_query: RoundQuery, by: int) -> RoundQuery:
    query = round_query.query
    assert isinstance(query, ClippedSum)
    return changed_query(round_query, query=replace(query, centre=query.centre + by))


def test_units_do_not_add_up_and_pass_no_bound() -> None:
    """Each wording is held against the session's own, not against the one before."""
    step = next(round_query for round_query in rehearse(PLAN) if isinstance(round_query.query, ClippedSum))
    session = Session.replay(PLAN, HONEST[: step.round])
    session.adopt(moved(step, 1))
    with pytest.raises(PeerError):
        session.adopt(moved(step, 2))
    session.adopt(step)
    assert not session.pending_differs
    least = tuple(release_of(round_query, [10**6, *[0] * 39]) for round_query in rehearse(PLAN)[1:2])
    session = Session.replay(PLAN, (HONEST[0], *least))
    assert session.pending is not None
    assert isinstance(session.pending.query, ClippedSum)
    floor = session.pending.query
    assert floor.radius == least_row_radius(3)
    with pytest.raises(RequestError, match="below the public floor"):
        session.adopt(changed_query(session.pending, query=replace(floor, radius=floor.radius - 1)))


def test_one_unit_is_the_same_question_and_two_are_another() -> None:
    round_query = next(
        round_query for round_query in rehearse(PLAN) if isinstance(round_query.query, ClippedSum)
    )
    assert is_same_query(round_query, moved(round_query, 1))
    assert not is_same_query(round_query, moved(round_query, 2))
    assert not is_same_query(
        round_query, changed_query(round_query, micro_rho=round_query.priced.micro_rho + 1)
    )


def test_two_statements_of_a_release_name_one_query(stage: Stage, store: SiteStore) -> None:
    stated = state(rehearse(PLAN)[0], HONEST, HONEST[0].digest)
    other = replace(stated.read(), query="ee" * 32).signed(RELEASE_KEY.sign)
    own = SessionReplica(PLAN, stage.authority.release_keys, store.transcript)
    known = round_to_proto(HONEST[0], stated)
    for _ in range(2):
        own.follow([known])
    with refused(Code.PROTOCOL, "signed two different releases"):
        own.follow([round_to_proto(HONEST[0], other)])
    assert [one.followed for one in own.unsaved()] == [True, False], "both are kept as evidence"

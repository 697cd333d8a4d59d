"""[P4] [P8] [P9] What a site charges itself, whatever the coordinator does: passes, and added epsilons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.accounting.budget import NoiseRule
from eigenveil.aggregation import Contribution
from eigenveil.errors import RequestError
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.queries import batch_of
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import micro_rho_of
from eigenveil.study.study import Federation
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.support import SITE, Stage, a_plan, a_stage, a_study, work, write_records


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = a_stage(
        tmp_path, algorithms=("gauss-cov", "private-oja"), noise=NoiseRule.ANY, minimum_records=80
    )
    write_records(stage.records, rows=80)
    return stage


def ask(stage: Stage, worker: SiteWorker, asked: RoundQuery, plan: Plan) -> object:
    return worker.work(work(asked, stage.signed(plan)))


def oja_plan() -> Plan:
    """Four parts; the study can go on without this site."""
    federation = Federation(sites=(SITE, "b"), quorum=1)
    return a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA, batches=4, federation=federation))


def spent(store: SiteStore) -> int:
    return store.ledger.ledger.spent.micro_rho


def passes(plan: Plan) -> tuple[list[RoundQuery], list[RoundQuery]]:
    """What comes before the first pass, and the parts of that pass."""
    queries = rehearse(plan)
    parts = [asked for asked in queries if batch_of(asked.query) is not None]
    first = parts[0].round
    return [asked for asked in queries if asked.round < first], [
        asked for asked in parts if asked.round < first + plan.batches
    ]




def test_a_site_that_missed_the_first_part_pays_with_the_next(stage: Stage) -> None:
    """Found in review: it declined every later part as unpaid, and so dropped out of the study."""
    plan, store = oja_plan(), stage.store()
    worker = stage.worker(store)
    before, parts = passes(plan)
    for asked in (*before, *parts[1:]):
        assert isinstance(ask(stage, worker, asked, plan), Contribution)
    assert spent(store) == sum(asked.micro_rho for asked in before) + parts[1].micro_rho
    assert isinstance(ask(stage, worker, parts[-1], plan), Contribution)  # again, as after a lost reply
    assert spent(store) == sum(asked.micro_rho for asked in before) + parts[1].micro_rho
    store.close()




def pure_plan() -> Plan:
    return a_plan(a_study(algorithm=Algorithm.GAUSS_COV, delta=0.0))


def test_epsilons_add_up_at_the_site_too(stage: Stage) -> None:
    """Found in review: rho alone would let thousands of questions through at a hundred times the epsilon."""
    plan, store = pure_plan(), stage.store()
    stage.worker(store).work(work(None, stage.signed(plan)))
    half = micro_rho_of(0.5 * plan.study.epsilon)
    first, second, third = (replace(rehearse(plan)[0], round=round, micro_rho=half) for round in range(3))
    for query in (first, second):
        store.outgoing.answer(plan, query, b"", ())
    with pytest.raises(RequestError, match="exceed the study's epsilon"):
        store.outgoing.answer(plan, third, b"", ())
    store.outgoing.answer(plan, second, b"", ())  # what is paid for may leave once more
    assert spent(store) == 2 * half < 3 * half < plan.micro_rho
    store.close()


def test_a_study_in_mu_gets_gaussian_noise_or_no_answer(stage: Stage) -> None:
    """The site insists on it by itself: a guarantee in mu holds for no other noise of the same price."""
    plan, store = a_plan(), stage.store()
    stage.worker(store).work(work(None, stage.signed(plan)))
    asked = rehearse(plan)[0]
    for other in (
        replace(asked, law=NoiseDistribution.LAPLACE),
        replace(asked, law=NoiseDistribution.STABILITY),
    ):
        with pytest.raises(RequestError, match="noise that is not Gaussian"):
            store.outgoing.answer(plan, other, b"", ())
    assert (spent(store), store.egress.rows()) == (0, [])
    store.outgoing.answer(plan, asked, b"", ())
    store.close()


def test_a_pure_study_gets_pure_noise_or_no_answer(stage: Stage) -> None:
    plan, store = pure_plan(), stage.store()
    worker = stage.worker(store)
    loud = replace(rehearse(plan)[0], law=NoiseDistribution.GAUSSIAN)
    refusal = ask(stage, worker, loud, plan)
    assert isinstance(refusal, Refusal)
    assert spent(store) == 0
    store.close()

"""First stages that the first releases choose, by them alone, and always within the rehearsals: those of
`auto`, and of refined-cov on wide tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from eigenveil import simulation
from eigenveil.algorithms.recommended import auto as subject
from eigenveil.algorithms.recommended import refined, refined_cov
from eigenveil.algorithms.recommended.refined_cov import FirstStage
from eigenveil.errors import Code
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.priors import prior_from_rows
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.queries import CrossNorms, Gradient, Gram, Query, released_length
from eigenveil.reporting.explain import explain
from eigenveil.session import Session
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import MAX_ROUNDS
from eigenveil.study.study import Scaling, Study
from tests.support import a_column, a_study, refused

N, D = 4000, 64
PIXELS = tuple(a_column(f"c{i}", -6.0, 6.0) for i in range(D))


def a_during(**changes: Any) -> Study:
    """A study of one site whose `auto` chooses during it."""
    return a_study(sites=("north",), **{"max_records": 2 * N, **changes}).with_algorithm(Algorithm.AUTO)


def run(study: Study, first: float, seed: int = 3) -> Simulation:
    """Normal records of variance 1, along the first axis `first`."""
    scale = np.r_[math.sqrt(first), np.ones(study.dimension - 1)]
    rows: FloatArray = np.random.default_rng(seed).standard_normal((N, study.dimension)) * scale
    return simulate(study, {"north": rows}, seed=seed)


def released_as(round_query: RoundQuery, values: ArrayLike) -> Release:
    """These values, with little noise in them."""
    return Release.of(round_query, frozen(np.asarray(values, dtype=np.int64)), 1.0, ("north",))


@contextmanager
def wide_from(d: int) -> Iterator[None]:
    """Many columns are `d` and more."""
    with mock.patch.object(refined_cov, "WIDE_MATRIX", d), mock.patch.object(refined, "WIDE_MATRIX", d):
        yield


def kinds(run: Simulation) -> list[type[Query]]:
    return [type(round_query.query) for round_query in run.queries]


def test_what_stands_out_of_the_noise_is_refined_and_what_does_not_is_sought_by_gradients() -> None:
    study = a_during(columns=PIXELS, epsilon=4.0, expected_records=N)
    noisy, flat = run(study, 30.0), run(study, 1.3)
    assert noisy.plan == flat.plan
    assert kinds(noisy).count(Gram) == 2
    assert Gradient not in kinds(noisy)
    assert kinds(flat).count(Gram) == 1
    assert kinds(flat).count(Gradient) >= 15
    assert CrossNorms in kinds(noisy)
    assert CrossNorms in kinds(flat)
    assert noisy.result.decision != flat.result.decision
    for found, word in ((noisy, "the rest of the matrix"), (flat, "gradients")):
        assert str(found.result.decision).startswith(word)
        assert found.document["results"]["pca"]["decision"] == found.result.decision


def test_a_matrix_too_wide_to_send_is_never_queried() -> None:
    """And with many times the records expected it asks no more than was foreseen."""
    with mock.patch.object(subject, "WIDE", D - 1):
        found = run(a_during(columns=PIXELS, epsilon=4.0, expected_records=100), 30.0)
        assert Gram not in kinds(found)
        assert str(D) in str(found.result.decision)
        assert len(found.queries) <= max(map(len, possible_rehearsals(found.plan)))


def test_the_first_revision_has_its_own_limit_of_columns() -> None:
    plan = make_plan(a_during(columns=PIXELS))
    with mock.patch.object(subject, "WIDE_BEFORE", D - 1):
        assert subject.first_stages(plan) == tuple(FirstStage)
        assert subject.first_stages(replace(plan, revision=1)) == (FirstStage.GRADIENTS,)


def test_a_wide_matrix_that_shows_nothing_in_its_first_part_gives_way_to_gradients() -> None:
    """Directions and variances are those of gradients then: the first part is no matrix of the result."""
    study = a_during(columns=PIXELS, epsilon=4.0, expected_records=N).with_algorithm(Algorithm.REFINED_COV)
    narrow = run(study, 1.3)
    with wide_from(D):
        visible, hidden = run(study, 30.0), run(study, 1.3)
        standard = run(replace(study, scaling=Scaling.STANDARD), 1.3)
        assert [kinds(one).count(Gram) for one in (narrow, visible, hidden)] == [1, 2, 1]
        assert [Gradient in kinds(one) for one in (narrow, visible, hidden)] == [False, False, True]
        assert max(len(visible.queries), len(hidden.queries)) <= max(
            map(len, possible_rehearsals(hidden.plan))
        )
    assert narrow.result.decision is None
    assert str(hidden.result.decision).startswith("gradients")
    assert visible.result.covariance is not None
    for one in (hidden, standard):
        assert (one.result.covariance, one.estimate.noise, one.estimate.clipping) == (None, None, None)


def test_the_first_revision_charges_its_own_last_micro_rho() -> None:
    """As version 1.0 did; another order of the products of shares charged one more at this budget."""
    study = a_during(epsilon=7.9, expected_records=300)
    plan = replace(make_plan(study), revision=1)
    rows = np.random.default_rng(0).normal(size=(300, study.dimension)) * 10 + 50
    with mock.patch.object(simulation, "make_plan", return_value=plan):
        found = simulate(study, {"north": np.clip(rows, 0, 100)}, seed=1)
    assert plan.micro_rho == 1_148_000
    assert (
        next(one.priced.micro_rho for one in found.queries if isinstance(one.priced.query, Gram)) == 108_485
    )


@given(st.integers(1, 3), st.sampled_from([D - 1, D]), st.booleans())
def test_only_todays_refined_cov_of_many_columns_chooses(revision: int, d: int, with_prior: bool) -> None:
    study = a_study(d=d, algorithm=Algorithm.REFINED_COV)
    rows = np.random.default_rng(d).uniform(0, 100, (200, d))
    plan = make_plan(replace(study, prior=prior_from_rows(rows, study)) if with_prior else study)
    with wide_from(D):
        stages = subject.first_stages(replace(plan, revision=revision))
    both = revision == 3 and d == D and not with_prior
    assert stages == (tuple(FirstStage) if both else (FirstStage.MATRIX,))


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32), size=st.sampled_from([0, 1, 10**3, 10**6, 10**10]),
    count=st.integers(-9, 10**5), d=st.sampled_from([2, 9]), k=st.integers(1, 2), centring=st.booleans(),
    way=st.sampled_from(FirstStage), wide=st.booleans(),
    algorithm=st.sampled_from([Algorithm.AUTO, Algorithm.REFINED_COV]),
)  # fmt: skip
def test_no_releases_exceed_the_predicted_cost_and_rounds(
    seed: int, size: int, count: int, d: int, k: int, centring: bool, way: FirstStage, wide: bool,
    algorithm: Algorithm,
) -> None:  # fmt: skip
    """Whatever numbers come back, however absurd, and whatever is decided from them."""
    study = a_during(d=d, components=k, centring=centring, max_records=10**5)
    plan = make_plan(study.with_algorithm(algorithm))
    random, sent = np.random.default_rng(seed), 0
    chosen = mock.patch.multiple(refined_cov, probe=lambda _: (way, ""), probe_wide=lambda _: (way, ""))
    with wide_from(2 if wide else 1000):
        with chosen:
            session = Session(plan)
            while (round_query := session.pending) is not None:
                values = (
                    random.integers(-size, size + 1, released_length(round_query.query))
                    if session.releases
                    else [count]
                )
                session.feed(released_as(round_query, values))
                sent += 8 * round_query.query.length
            again = Session.replay(plan, session.releases)
        ways = possible_rehearsals(plan)
        assert sent <= explain(plan, ways)["bytes_per_site"]
    assert session.spent.fits(plan.cost)
    assert len(session.releases) <= max(map(len, ways)) <= MAX_ROUNDS
    assert [one.digest for one in again.queries] == [one.digest for one in session.queries]


def test_a_study_that_names_its_algorithm_leaves_nothing_to_choose() -> None:
    with refused(Code.BAD_STUDY, "choose", "gauss-cov"):
        a_study(algorithm=Algorithm.GAUSS_COV, choose="during")
    during = a_during()
    assert make_plan(during).algorithm is Algorithm.AUTO
    assert plan_from_json(make_plan(during).to_json()) == make_plan(during)
    assert make_plan(during.with_algorithm(Algorithm.DP_PCA)).algorithm is Algorithm.DP_PCA
    assert make_plan(a_during(delta=0.0)).algorithm is Algorithm.GAUSS_COV

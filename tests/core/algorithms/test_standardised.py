"""[P7] [P29] Columns in parts of their standard deviations: what is asked, found, and said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil import PrivateCovariance, PrivatePCA
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms import ALGORITHMS
from eigenveil.algorithms.shared import standardised as module
from eigenveil.algorithms.shared.column_scales import (
    BIAS,
    SPREADS,
    SQUARE,
    ColumnScales,
    column_scales,
    moments_radius,
    predicted_scale_error,
)
from eigenveil.algorithms.shared.preparation import cost_of_share, noise_distribution, shares
from eigenveil.errors import Code
from eigenveil.noise.source import noise_spec
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.planning.choose import make_plan
from eigenveil.planning.predict import predict
from eigenveil.protocol.estimate import Estimate, MatrixNoise
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries import ColumnHistograms, ColumnMoments, Frame
from eigenveil.queries.limits import WEIGHT
from eigenveil.session import Session
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Column, Federation, Study
from tests.support import refused

HIGH_EPSILON = 1e4  # epsilon at which noise is next to nothing
SPREAD = np.array([0.7, 0.3, 4.0, 15.0])  # of columns whose bounds are 100 apart: unequally generous ones
MIDDLE = np.array([5.0, -20.0, 10.0, 0.0])
COLUMNS = tuple(Column(name=f"c{i}", unit="mm", lower=-50.0, upper=50.0) for i in range(4))


def correlated(n: int = 6000, seed: int = 3) -> FloatArray:
    """Columns of those spreads, of which the first two go together, and the last two a little less."""
    z = np.random.default_rng(seed).normal(size=(n, 4))
    z[:, 1] = 0.9 * z[:, 0] + np.sqrt(1 - 0.81) * z[:, 1]
    z[:, 3] = 0.6 * z[:, 2] + 0.8 * z[:, 3]
    return np.asarray(z * SPREAD + MIDDLE)


def exact(records: FloatArray, k: int) -> FloatArray:
    x = (records - records.mean(axis=0)) / records.std(axis=0)
    return eigenpairs(x.T @ x / len(x))[1][:, :k].T


def a_study(**changes: Any) -> Study:
    values: dict[str, Any] = {
        "name": "standard", "columns": COLUMNS, "epsilon": HIGH_EPSILON, "delta": 1e-6, "components": 2,
        "algorithm": Algorithm.GAUSS_COV, "federation": Federation(sites=("a",)), "scaling": "standard",
        "max_records": 2**20, "expected_records": 6000,
    }  # fmt: skip
    return Study(**(values | changes))


def run(records: FloatArray, seed: int = 1, **changes: Any) -> Simulation:
    return simulate(a_study(**changes), {"a": records}, seed=seed)


@pytest.mark.parametrize("name", ["gauss-cov", "refined-cov", "refined-pca", "dp-pca", "auto"])
def test_without_noise_components_are_those_of_the_correlations(name: str) -> None:
    records = correlated()
    result = run(records, algorithm=name).result
    assert sin_angle(exact(records, 2), result.components) < 0.03
    assert np.allclose(result.scale, records.std(axis=0), rtol=0.03)
    assert np.allclose(result.mean, records.mean(axis=0), atol=0.02 * records.std(axis=0))
    correlations = np.linalg.eigvalsh(np.corrcoef(records.T))[::-1]
    assert np.allclose(result.explained_variance, correlations[:2], rtol=0.05)
    assert np.isclose(result.total_variance, 4, rtol=0.05)


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_error_of_a_variance_is_predicted_from_the_noise_that_will_be_drawn(
    delta: float, sites: int
) -> None:
    study = a_study(epsilon=1.0, delta=delta, max_sites_per_person=sites, expected_records=20_000)
    plan = make_plan(replace(study, federation=Federation(sites=("a", "b"))))
    query = ColumnMoments(columns=4, radius=moments_radius(plan, 20_000.0))
    paid = cost_of_share(plan, shares(plan).scales[1])
    drawn = noise_spec(query, paid, study.neighbours, sites, noise_distribution(plan)).sigma
    noise = drawn / WEIGHT / 20_000 / SQUARE  # in parts of the square of one standard deviation
    assert predicted_scale_error(plan) == pytest.approx(math.hypot(BIAS, 2 * noise), rel=1e-4)


FEDERATED = [name for name in ALGORITHMS if not (name.properties.exact_rows or name is Algorithm.ZERO)]


@pytest.mark.parametrize("name", FEDERATED)
def test_every_algorithm_queries_through_the_frame_within_its_plan(name: Algorithm) -> None:
    alone = name.properties.single_records
    study = a_study(
        epsilon=2.0,
        algorithm=name,
        expected_records=900 if alone else 6000,
        neighbours=Neighbours.REPLACE_ONE if alone else Neighbours.ADD_REMOVE,
    )
    done = simulate(study, {"a": correlated(900 if alone else 6000)}, seed=4)
    first, second, *rest = done.queries
    assert (type(first.query), type(second.query)) == (ColumnHistograms, ColumnMoments)
    assert first.priced.frame is None
    assert second.priced.frame is not None
    frames = {id(round_query.priced.frame) for round_query in rest}
    assert rest
    assert len(frames) == 1
    assert None not in [round_query.priced.frame for round_query in rest]
    spent = sum(release.micro_rho for release in done.releases)
    assert 0 < spent <= done.plan.micro_rho


@pytest.mark.parametrize("name", [name for name in Algorithm if name.properties.exact_rows])
def test_what_rests_on_whole_numbers_is_not_run_on_scaled_ones(name: Algorithm) -> None:
    with refused(Code.BAD_STUDY, "round the records out", '"bounds"'):
        make_plan(a_study(algorithm=name, delta=1e-6))


@pytest.mark.parametrize("changes", [{"centring": False}, {"radius": PublicNorm(norm=1.0)}])
def test_options_without_standard_deviations_are_refused(changes: dict[str, Any]) -> None:
    with refused(Code.BAD_STUDY, '"standard"'):
        a_study(**changes)


def test_the_stated_and_the_predicted_sine_are_near_the_measured_one() -> None:
    generator = np.random.default_rng(5)
    factor, weights = generator.normal(size=(20_000, 1)), np.linspace(0.3, 0.9, 8)
    rest = generator.normal(size=(20_000, 8)) * np.sqrt(1 - weights**2)
    records = np.clip((factor * weights + rest) * np.geomspace(1, 12, 8), -50, 50)
    columns = tuple(Column(name=f"c{i}", unit="mm", lower=-50.0, upper=50.0) for i in range(8))
    study = a_study(epsilon=1.0, components=1, columns=columns, expected_records=20_000)
    runs = [simulate(study, {"a": records}, seed=seed).result for seed in range(15)]
    measured = float(np.median([sin_angle(exact(records, 1), one.components) for one in runs]))
    stated = float(np.median([one.predicted_sin_angle or 0.0 for one in runs]))
    assert measured / 2 < stated < measured * 2
    predicted = predict(study, spectrum=np.linalg.eigvalsh(np.corrcoef(records.T))[::-1].tolist())
    assert predicted.error is not None
    assert measured / 2 < predicted.error.median < measured * 2


def test_noise_is_stated_in_parts_of_standard_deviations() -> None:
    """The unit is the frame's deviation, and for a variance its square."""
    frame = Frame(middles=frozen([0] * 4), factors=frozen([2**20] * 4))
    none, resolved = np.zeros(4), np.ones(4, dtype=bool)
    scales = ColumnScales(frame=frame, resolved=resolved, noise=none, outside=none, lost=none)
    noise = MatrixNoise(
        distribution=NoiseDistribution.GAUSSIAN,
        diagonal=2e-3,
        off_diagonal=1e-3,
        count=0.0,
        centre=1e-4,
        retained_share=1.0,
    )
    found = Estimate(
        components=np.eye(1, 4), explained_variance=np.array([0.1]), mean=np.zeros(4), records=6000.0,
        total_variance=0.2, noise_scale=1e-3, sin_error=0.1, noise=noise,
    )  # fmt: skip
    turned = module.in_units(make_plan(a_study()), scales, found)
    assert turned.noise == noise.in_units(SPREADS**2)
    assert turned.noise_scale == pytest.approx(1e-3 * SPREADS**2)
    assert turned.total_variance == pytest.approx(0.2 * SPREADS**2)


def test_a_column_that_noise_hides_is_named_and_does_no_harm() -> None:
    """One that is constant, and one that one record in 1,000 sets apart."""
    records = correlated(6000)
    records[:, 0], records[:, 1] = 7.0, np.where(np.arange(6000) % 1000 == 0, 50.0, -50.0)
    result = run(records, epsilon=1.0, components=1).result
    message = next(sentence for sentence in result.warnings if "noise hides the spread" in sentence)
    assert "c0, c1;" in message
    x = (records[:, 2:] - records[:, 2:].mean(axis=0)) / records[:, 2:].std(axis=0)
    goal = np.r_[0, 0, eigenpairs(x.T @ x / len(x))[1][:, 0]][None, :]
    assert sin_angle(goal, result.components) < 0.5


def test_without_one_known_spread_the_stated_error_is_one() -> None:
    """Each column was divided by an assumption: the result has the components of other columns."""
    records = correlated(6000) / SPREAD / 50
    results = [run(records, seed=seed, epsilon=1.0, components=1).result for seed in range(3)]
    assert all("spread of these columns: c0, c1, c2, c3;" in one.warnings[0] for one in results)
    assert [one.sin_error for one in results] == [1.0] * 3


def test_no_library_rounds_anything_on_the_way_to_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """So two machines ask the same second query, and see records through the same frame."""

    def poisoned(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a library's own rounding decides about a query")

    for name in ("exp", "log", "log2", "power", "dot", "matmul", "einsum", "exp2"):
        monkeypatch.setattr(np, name, poisoned)
    session = Session(make_plan(a_study(epsilon=1.0)))
    steps, records = column_scales(session.plan), correlated()
    monkeypatch.undo()
    done = simulate(session.plan.study, {"a": records}, seed=2)
    for name in ("exp", "log", "log2", "power", "dot", "matmul", "einsum", "exp2"):
        monkeypatch.setattr(np, name, poisoned)
    next(steps)
    round_query = steps.send(done.releases[0])
    assert round_query.frame is not None
    with pytest.raises(StopIteration) as end:
        steps.send(done.releases[1])
    monkeypatch.undo()
    third = done.queries[2].priced.frame
    assert third is not None
    assert end.value.value.frame.factors.tolist() == third.factors.tolist()


@pytest.mark.filterwarnings("ignore:half the distance")
def test_estimators_transform_in_the_columns_own_units() -> None:
    records = correlated()
    options: dict[str, Any] = {"epsilon": HIGH_EPSILON, "bounds": (-50, 50), "scaling": "standard"}
    pca = PrivatePCA(2, algorithm="gauss-cov", random_state=0, **options).fit(records)
    assert np.allclose(pca.scale_, records.std(axis=0), rtol=0.03)
    scores = pca.transform(records)
    assert np.allclose(scores.var(axis=0), pca.explained_variance_, rtol=0.05)
    whole = PrivatePCA(4, algorithm="gauss-cov", random_state=0, **options).fit(records)
    assert np.allclose(whole.inverse_transform(whole.transform(records)), records, atol=1e-6)
    found = PrivateCovariance(random_state=0, **options).fit(records)
    size = np.outer(records.std(axis=0), records.std(axis=0))
    assert np.allclose(found.covariance_ / size, np.corrcoef(records.T), atol=0.06)

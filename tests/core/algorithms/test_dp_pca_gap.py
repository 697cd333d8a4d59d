"""dp-pca and refined-pca say where their predicted error assumes a gap that their releases do not show."""

from __future__ import annotations

import numpy as np
import pytest

from eigenveil import simulation
from eigenveil.algorithms import Estimate
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.queries import Frame, Gradient, Query
from eigenveil.simulation import simulate
from eigenveil.site.record_view import ParallelMap
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from tests.support import a_study

STRONG, WEAK = 8.0, 0.5  # epsilons with and without spare directions


def records(variances: list[float], n: int = 20_000) -> FloatArray:
    """Records with exactly these variances, in turned directions of columns from 0 to 100."""
    rng = np.random.default_rng(0)
    d = len(variances)
    plain = rng.normal(size=(n, d))
    plain -= plain.mean(axis=0)
    plain = plain @ np.linalg.inv(np.linalg.cholesky(plain.T @ plain / n)).T
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return np.asarray(50 + (plain * np.sqrt(variances)) @ turn)


def found(
    rows: FloatArray,
    epsilon: float,
    k: int = 2,
    radius: float | None = None,
    algorithm: Algorithm = Algorithm.DP_PCA,
) -> Estimate:
    study = a_study(rows.shape[1], ("a",), epsilon=epsilon, components=k, algorithm=algorithm, radius=radius)
    return simulate(study, {"a": rows}, seed=1).estimate


@pytest.mark.parametrize(
    ("variances", "epsilon", "message"),
    [
        ([90.0, 40.0, 2.0, 2.0, 2.0, 2.0], WEAK, None),  # all that is left is less than the second
        ([90.0, 40.0, 39.5, 2.0, 2.0, 2.0], WEAK, "component 2 and the next direction"),
        ([90.0, 40.0, 20.0, 20.0, 20.0, 20.0], WEAK, None),
        ([90.0, 40.0, 20.0, 20.0, 20.0, 20.0], STRONG, None),
        ([90.0, 40.0, 39.99, 20.0, 20.0, 20.0], STRONG, "component 2 and the next direction"),
    ],
)
def test_an_unmeasured_gap_is_warned_of(variances: list[float], epsilon: float, message: str | None) -> None:
    warnings = found(records(variances), epsilon).warnings
    assert len(warnings) == (message is not None)
    assert all(message is not None and message in sentence for sentence in warnings)


@pytest.mark.parametrize(("third", "message"), [(20.0, 0), (39.99, 1)])
def test_refined_directions_have_the_gap_that_was_measured_before(third: float, message: int) -> None:
    rows = records([90.0, 40.0, third, 20.0, 20.0, 20.0])
    result = found(rows, STRONG, algorithm=Algorithm.REFINED_PCA)
    assert sum("component 2 and the next direction" in one for one in result.warnings) == message


@pytest.mark.parametrize(("columns", "rounds", "directions"), [(6, 15, 2), (100, 15, 2), (101, 20, 4)])
def test_a_weak_signal_of_few_columns_is_asked_for_no_spare_direction(
    columns: int, rounds: int, directions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/algorithms/refined-pca.md says it, with two components."""
    asked: list[int] = []

    class Recording(Site):
        def answer(self, query: Query, apply: ParallelMap = map, *, frame: Frame | None = None) -> IntArray:
            if isinstance(query, Gradient):
                asked.append(query.spec.k)
            return super().answer(query, apply, frame=frame)

    monkeypatch.setattr(simulation, "Site", Recording)
    rows = records([90.0, 40.0, *[2.0] * (columns - 2)], n=800)
    found(rows, WEAK, algorithm=Algorithm.REFINED_PCA)
    assert asked == [directions] * (rounds + 1)  # and once more, for the variances

"""[P7] Intervals know what clipping may have removed unseen: limits of the loss, the word, the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil import Column, Federation, Simulation, Study, simulate, simulation
from eigenveil.algorithms.shared.clip_radius import UNSEEN, NormGrid, NormHistogram
from eigenveil.derived.clipping import ColumnLoss, IntervalTrust
from eigenveil.derived.covariance import IntervalEstimate, NoisedCovariance
from eigenveil.derived.moments import Moments
from eigenveil.errors import Code
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.choose import make_plan
from eigenveil.queries.limits import BINS
from eigenveil.reporting.report import render
from eigenveil.study.study import Scaling
from tests.core.derived.drawn import a_matrix, a_noise
from tests.support import refused

TRUSTED, UNKNOWN = IntervalTrust.TRUSTED, IntervalTrust.UNKNOWN
GRID = NormGrid(top=2.0)
RARE = 0.0005


def histogram(rows: FloatArray, sigma: float = 0.0) -> NormHistogram:
    """The exact histogram of the norms, all of whose bins are insignificant."""
    norms = np.linalg.norm(rows, axis=1)
    counts = np.histogram(norms, np.r_[-1, GRID.edges(2**20) / 2**20, 10])[0][::-1]
    return NormHistogram(grid=GRID, counts=np.zeros(BINS), sigma=sigma, noised=counts.astype(np.float64))


@given(arrays(np.float64, (5, 3), elements=st.floats(-1, 1, width=32)), st.floats(0.05, 2), st.integers(0, 2))
def test_no_column_loses_more_than_the_limit(rows: FloatArray, radius: float, column: int) -> None:
    """Without noise, of any records: clipped squares of a column lie below the limit, to an edge's step."""
    norms = np.maximum(np.linalg.norm(rows, axis=1), 1e-9)
    loss = float((rows[:, column] ** 2 * np.maximum(1 - (radius / norms) ** 2, 0)).sum())
    reach = np.abs(rows).max(axis=0)
    assert loss <= histogram(rows).largest_loss(radius, reach)[column] + 1e-5


def test_noise_hides_records_up_to_the_top_of_the_grid() -> None:
    """One sd of records in the top bin, of a norm of 2, clipped to 1: each loses 1 - 1 / 4 of a square of
    min(4, reach^2)."""
    empty = histogram(np.zeros((1, 2)), sigma=10.0)
    limit = empty.largest_loss(1.0, np.array([0.5, 2.0]))
    assert (limit >= UNSEEN * 10 * 0.75 * np.array([0.25, 4.0])).all()
    assert not empty.largest_loss(2.0, np.ones(2)).any()


def a_study(**changes: object) -> Study:
    ends = ((-6, 6),) * 5 + ((0, 1),)
    columns = tuple(
        Column(name=name, unit="1", lower=low, upper=high)
        for name, (low, high) in zip("abcdef", ends, strict=True)
    )
    values = {"name": "pilot", "columns": columns, "epsilon": 1.0, "delta": 1e-6, "components": 2} | changes
    values = {"algorithm": "gauss-cov", "scaling": Scaling.BOUNDS} | values
    return Study(federation=Federation(sites=("north",)), **values)  # type: ignore[arg-type]


def rare_rows(n: int = 100_000, share: float = RARE) -> FloatArray:
    rows = np.random.default_rng(3).normal(size=(n, 6))
    rows[:, 5] = np.arange(n) < share * n
    return rows


def released(rows: FloatArray, revision: int | None = None, **changes: object) -> Simulation:
    """A run of a study, of the newest revision or a given one."""
    plan = make_plan(a_study(**changes))
    plan = plan if revision is None else replace(plan, revision=revision)
    with mock.patch.object(simulation, "make_plan", return_value=plan):
        return simulate(plan.study, {"north": rows}, seed=1)


def test_a_rare_column_is_unknown_and_the_others_are_trusted() -> None:
    moments = Moments.of(released(rare_rows()))
    found = moments.correlation()
    assert found.intervals is UNKNOWN
    assert found.to_dict()["intervals"] == "unknown"
    (note,) = (one for one in found.notes if "variance of f" in one)
    assert "leave them out" in note
    noise = Moments(matrix=moments.matrix.noise_only).correlation().numbers
    assert np.array_equal(found.numbers.is_noise, noise.is_noise)
    assert moments.correlation(list("abcde")).intervals is TRUSTED
    assert moments.regress("f", on=["a"]).intervals is UNKNOWN
    assert moments.pca(2, columns=list("abc")).intervals is TRUSTED
    assert moments.subspace_angle(moments, 1).intervals is UNKNOWN


def test_a_study_that_clips_nothing_is_trusted() -> None:
    run = released(rare_rows(), radius=1.0)
    assert Moments.of(run).correlation().intervals is TRUSTED
    exact = np.asarray(np.corrcoef(rare_rows().T))[5, :5]
    found = Moments.of(run).correlation().numbers
    assert ((found.low[5, :5] <= exact) & (exact <= found.high[5, :5])).all()


def test_the_ends_of_a_frame_are_counted_as_clipping() -> None:
    """At a prevalence of 1 % the ones are 10 sd from the middle, beyond the frame of 7."""
    run = released(rare_rows(50_000, 0.01), scaling=Scaling.STANDARD, epsilon=4.0)
    assert run.result.clipping is not None
    assert run.result.clipping.outside[5] > 0.2
    assert Moments.of(run).correlation().intervals is UNKNOWN
    assert Moments.of(run).correlation(list("abcde")).intervals is TRUSTED


def test_an_earlier_revision_states_no_loss_and_its_intervals_are_unknown() -> None:
    run = released(rare_rows(2000), revision=2)
    assert run.result.clipping is None
    assert "clipping" not in run.document["results"]["pca"]
    found = Moments.of(run).correlation()
    assert found.intervals is UNKNOWN
    assert any("does not state" in note for note in found.notes)
    unclipped = released(rare_rows(2000), revision=2, radius=1.0)
    assert Moments.of(unclipped).correlation().intervals is TRUSTED  # its plan says so
    assert Moments.of(unclipped.result).correlation().intervals is UNKNOWN


def with_loss(share: float, outside: float = 0.0, growth: float = 1.0) -> NoisedCovariance:
    """Four columns, of which the last may have lost that share of its variance."""
    matrix, here = a_matrix(), np.array([0, 0, 0, 1.0])
    loss = ColumnLoss(
        lost=share * here * matrix.values[3, 3],
        outside=outside * here * matrix.values[3, 3],
        contradicted=np.zeros(4, dtype=bool),
        common=0.0,
        radius=1.0,
        noise_growth=growth,
    )
    return replace(matrix, loss=loss)


def test_errors_grow_with_the_possible_loss_of_a_column_and_only_there() -> None:
    before, after = with_loss(0.0).entry_errors, with_loss(1.0).entry_errors
    assert np.array_equal(before[:3, :3], after[:3, :3])
    assert after[3, 3] > 2 * before[3, 3]
    cut = with_loss(0.0, outside=0.2).entry_errors
    assert cut[3, 3] == pytest.approx(np.hypot(before[3, 3], 0.2 * np.sqrt(2) * a_matrix().values[3, 3]))
    assert with_loss(1.0).intervals is TRUSTED
    assert with_loss(2.0).intervals is with_loss(0.0, outside=0.3).intervals is UNKNOWN


def test_what_clipping_may_have_removed_widens_intervals_and_moves_no_value() -> None:
    before, after = Moments(matrix=with_loss(0.0)), Moments(matrix=with_loss(1.0))
    asks: tuple[Callable[[Moments], IntervalEstimate], ...] = (
        lambda m: m.regress("d", on=["b", "c"]).r_squared,
        lambda m: m.regress("d", on=["b", "c"]).intercept,
        lambda m: m.pca(2).variances,
        lambda m: m.partial_correlations().numbers,
    )
    for ask in asks:
        assert np.array_equal(ask(before).values, ask(after).values)
        assert (ask(after).errors >= ask(before).errors).all()
        assert (ask(after).errors > 1.2 * ask(before).errors).any()


def test_no_clipping_is_offered_only_where_its_noise_leaves_the_column() -> None:
    assert 'radius = "none"' in with_loss(9.0, growth=10.0).notes()[-1]
    assert 'radius = "none"' not in with_loss(9.0, growth=1e5).notes()[-1]
    standard = replace(with_loss(9.0), noise=replace(a_noise(1e-4), divisors=(1.0,) * 4))
    assert 'scaling = "bounds"' in standard.notes()[-1]


def test_a_two_valued_column_is_held_against_its_mean() -> None:
    """At 2 % the two agree, and that limits what was lost. Few ones are clipped in the mean as well, more
    than in the matrix, which contradicts nothing; values between the bounds do."""
    common, rare = (
        released(rare_rows(n, share), epsilon=3.0) for n, share in ((20_000, 0.02), (100_000, 0.001))
    )
    before, after = (Moments.of(common, two_valued=names).matrix.loss for names in ((), ("f",)))
    assert before is not None
    assert after is not None
    assert after.lost[5] < 0.9 * before.lost[5]
    assert not after.contradicted.any()
    assert Moments.of(rare, two_valued=["f"]).correlation().intervals is TRUSTED
    found = Moments.of(rare, two_valued=["a"]).correlation()
    assert found.intervals is UNKNOWN
    assert any("the two-valued a contradict" in note for note in found.notes)
    with refused(Code.BAD_ARGUMENT, "Pass its release"):
        Moments.of(rare.result, two_valued=["f"])
    for run in (rare, released(rare_rows(2000), revision=2)):
        with refused(Code.BAD_ARGUMENT, "no column 'g'"):
            Moments.of(run, two_valued=["g"])


def test_a_report_says_the_word_and_the_reason() -> None:
    page = render(released(rare_rows()))
    assert UNKNOWN.sentence in page
    assert "variance of f" in page

"""[P7] [P28] Leading directions turned by their cross covariance: exact without noise, honest with it.

Statistical tests are two-sided chi-squared tests at a false-alarm rate of 1e-6, on seeded draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from scipy import stats

from eigenveil.algorithms.shared import refinement
from eigenveil.algorithms.shared.query_builders import CrossQueryBuilder
from eigenveil.algorithms.shared.refinement import AlignedCovariance
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.rounds import Release
from eigenveil.queries import CrossCovariance, released_length
from eigenveil.queries.limits import WEIGHT
from eigenveil.session import Session
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from tests.core.algorithms.test_algorithms import run, spectrum, study, truth
from tests.core.algorithms.test_bounds import LIES, lie

A = Algorithm
REFINED = {A.REFINED_COV: A.GAUSS_COV, A.REFINED_PCA: A.DP_PCA}  # and what each turns
ALARM = 1e-6
FALLING = [1 / i for i in range(1, 21)]


def basis(d: int, m: int, seed: int = 0) -> FloatArray:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((d, m)))[0])


def known(
    axes: FloatArray, variances: list[float], k: int, sd: float, level: float = 0.0
) -> AlignedCovariance:
    """A covariance of which every cross covariance is known up to `sd`."""
    return AlignedCovariance(
        basis=axes,
        variances=np.array(variances),
        level=level,
        sd=np.full((k, len(variances) - k + 1), sd),
        gap_noise=0.0,
        variance_sd=0.0,
    )


def consistent(squares: float, freedom: int) -> bool:
    """True if a sum of squares fits so many standard normal numbers."""
    lower, upper = stats.chi2.ppf(ALARM / 2, freedom), stats.chi2.isf(ALARM / 2, freedom)
    return bool(lower < squares < upper)


# ------------------------------------------------------------------ a turn


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("m", "k"), [(12, 1), (12, 4), (6, 2), (4, 4)])
def test_without_noise_turns_end_at_the_components(m: int, k: int, direct: bool) -> None:
    d = 12
    axes = basis(d, d, 1)
    exact = (axes * np.append([9.0, 7.0, 5.0, 4.0], np.full(d - 4, 1.0))) @ axes.T
    found = known(
        basis(d, d, 2)[:, :m] * 0.2 + axes[:, :m], [9.0, 7.0, 5.0, 4.0, *[1.0] * 8][:m], k, 1.0, 1.0
    )
    for _ in range(60):
        frame = np.linalg.qr(found.basis)[0]
        matrix = frame.T @ exact @ frame
        outside = exact @ frame[:, :k] - frame @ matrix[:, :k]
        turned = known(frame, list(found.variances), k, 1.0, 1.0)
        found = turned.turned(matrix[:k, k:], outside, np.full(found.sd.shape, 1e-9), direct=direct)
    assert sin_angle(found.basis[:, :k].T, axes[:, :k].T) < 1e-6


@pytest.mark.parametrize("noise", [0.05, 0.2, 1.0])
def test_the_rest_after_a_turn_has_its_stated_size(noise: float) -> None:
    """Entries drawn as they are believed to be, seen with noise: a turn that trusted the noise in full, or
    not at all, would be further off than it says; and one that knew the noise wrongly, too."""
    d, sd, gap, runs = 40, 0.2, 1000.0, 50
    generator = np.random.default_rng(int(noise * 100))
    square = 0.0
    for _ in range(runs):
        entries = generator.normal(scale=sd, size=(1, d - 1))
        seen = entries + generator.normal(scale=noise, size=entries.shape)
        first = known(np.eye(d), [gap + 1, *[1.0] * (d - 1)], 1, sd)
        # As if nothing were surprising: what is said of a surprise is held elsewhere.
        found = first.turned(seen, np.zeros((d, 1)), np.full(first.sd.shape, noise), direct=True)
        left = found.basis[1:, 0] * gap / found.basis[0, 0] - entries[0]
        square += float((left**2).sum()) / (1 / (1 / sd**2 + 1 / noise**2))
    assert consistent(square, runs * (d - 1))


# ------------------------------------------------------------------ the query, and its answer read


def cross(d: int, p: int, k: int) -> CrossQueryBuilder:
    return CrossQueryBuilder(
        centre=frozen(np.zeros(d, dtype=np.int64)),
        basis=basis(d, p),
        leading=frozen([WEIGHT - 150 * i for i in range(k)]),
        spare=frozen([WEIGHT - 170 * (1 + i) for i in range(p - k)]),
    )


def release_of(values: IntArray, sigma: float) -> Release:
    return Release(
        round=0, query="0" * 64, values=values, sigma=sigma, micro_rho=1, atto_delta=0, present=()
    )  # fmt: skip


@pytest.mark.parametrize(("d", "p", "k"), [(6, 4, 2), (5, 5, 1), (7, 2, 2)])
def test_an_answer_without_the_weights_is_the_cross_covariance(d: int, p: int, k: int) -> None:
    rows = np.random.default_rng(3).integers(-S // 4, S // 4, (500, d)).astype(np.int16)
    builder = cross(d, p, k)
    query, unit = builder.query(1.0)
    along, outside, _ = builder.read(release_of(Site(rows).answer(query), 1.0), unit * len(rows))
    z = rows / S
    exact = z.T @ z / len(rows)
    lead, spare = builder.basis[:, :k], builder.basis[:, k:]
    assert np.allclose(along, lead.T @ exact @ spare, atol=2e-4)
    beyond = exact @ lead - builder.basis @ (builder.basis.T @ exact @ lead)
    assert np.allclose(outside, beyond, atol=2e-4)


def test_the_noise_of_an_answer_has_its_stated_size() -> None:
    d, p, k, runs, sigma = 8, 5, 2, 400, 1000.0
    round_query, generator = cross(d, p, k), np.random.default_rng(4)
    inside, beyond = np.zeros((k, p - k)), np.zeros(k)
    for _ in range(runs):
        values = frozen(np.rint(generator.normal(scale=sigma, size=d * k)).astype(np.int64))
        along, outside, sd = round_query.read(release_of(values, sigma), 1.0)
        inside += (along / sd[:, :-1]) ** 2
        beyond += ((outside / sd[:, -1]) ** 2).sum(axis=0)
    assert all(consistent(square, runs) for square in inside.ravel())
    assert all(consistent(square, runs * (d - p)) for square in beyond)


# ------------------------------------------------------------------ the algorithms


@settings(max_examples=25, deadline=None)
@given(
    algorithm=st.sampled_from(list(REFINED)),
    kinds=st.lists(st.sampled_from(LIES), min_size=1, max_size=6),
    k=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
@example(algorithm=A.REFINED_PCA, kinds=["absurd"], k=3, seed=1)
@example(algorithm=A.REFINED_PCA, kinds=["nothing", "towards a corner"], k=1, seed=0)
@example(algorithm=A.REFINED_COV, kinds=["all at the centre", "random"], k=3, seed=2)
def test_whatever_is_released_the_budget_holds_and_the_result_is_defined(
    algorithm: Algorithm, kinds: list[str], k: int, seed: int
) -> None:
    plan = make_plan(study(4, algorithm, components=k, expected_records=5000))
    session, random = Session(plan), np.random.default_rng(seed)
    while (round_query := session.pending) is not None:
        values = lie(kinds[round_query.round % len(kinds)], released_length(round_query.query), random)
        try:
            session.feed(Release.of(round_query, values, 1.0, ("a", "b", "c")))
        except RequestError as problem:  # no query about numbers so absurd can be asked
            if problem.code is not Code.OVERFLOW or "absurd" not in kinds:
                raise
            reject()
    assert sum(one.micro_rho for one in session.releases) <= plan.micro_rho
    found = session.result
    assert np.allclose(found.components @ found.components.T, np.eye(k), atol=1e-8)
    assert np.isfinite(found.explained_variance).all()
    assert found.sin_error is not None
    assert 0 <= found.sin_error <= 1


@pytest.mark.parametrize("algorithm", REFINED)
def test_a_weak_first_stage_is_turned_in_more_steps(algorithm: Algorithm) -> None:
    """Of the same records, cut down to a few of them."""
    rows = spectrum(20_000, FALLING, 0)
    strong, weak = (
        sum(
            isinstance(one.query, CrossCovariance)
            for one in run(study(20, algorithm, epsilon=1.0), part).queries
        )
        for part in (rows, rows[:300])
    )
    assert 1 <= strong < weak


def test_what_lies_beyond_the_spare_directions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so few directions of their own weight that nearly all is read off the rest."""
    rows, what = spectrum(20_000, FALLING, 0), study(20, A.REFINED_COV, epsilon=4.0)
    monkeypatch.setattr(refinement, "FEWER_SPARE", ())
    found = [sin_angle(run(what, rows, 0).estimate.components, truth(rows, 1))]
    monkeypatch.setattr(refinement, "SPARE", 1)
    found += [sin_angle(run(what, rows, 0).estimate.components, truth(rows, 1))]
    assert found[1] < 2 * found[0]

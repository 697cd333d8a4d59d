"""[P25] Whatever releases a study is fed, none of its queries passes the public bounds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil import queries as q
from eigenveil import session as session_module
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.algorithms.shared.preparation import box, check_bounds
from eigenveil.errors import EigenveilError, RequestError
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release
from eigenveil.queries.columns import LEAST_FACTOR, MOST_FACTOR, least_moments_radius
from eigenveil.queries.gradients import least_gradient_radius
from eigenveil.queries.limits import WEIGHT, least_row_radius
from eigenveil.session import Session
from eigenveil.site.kernels.clipping import gradient_coefficients, weights
from eigenveil.site.record_view import apply_frame
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.study import Column, Federation, Scaling, Study
from tests.support import changed_query

D = 4
MOST_ROUNDS = 12  # rounds that are fed lies; later ones are of the same kinds
LIES = ("nothing", "everywhere", "towards a corner", "all at the centre", "random", "absurd")


def a_plan(algorithm: Algorithm, scaling: Scaling = Scaling.BOUNDS) -> Plan:
    columns = tuple(Column(name=f"c{i}", unit="", lower=-1.0, upper=1.0 + i) for i in range(D))
    study = Study(
        name="steered", columns=columns, epsilon=1.0, delta=1e-6, components=1, algorithm=algorithm,
        federation=Federation(sites=("a",)), max_records=10_000, expected_records=5_000, scaling=scaling,
        neighbours=Neighbours.REPLACE_ONE if algorithm.properties.single_records else Neighbours.ADD_REMOVE,
    )  # fmt: skip
    return make_plan(study, federation="f", submission="s", analyst="ada")


def lie(kind: str, size: int, random: np.random.Generator) -> IntArray:
    match kind:
        case "nothing":
            return frozen(np.zeros(size, dtype=np.int64))
        case "everywhere":
            return frozen(np.full(size, 5_000))
        case "towards a corner":
            return frozen(np.full(size, 2**40 if size > 1 else 5_000))  # few records, far away
        case "all at the centre":
            return frozen(5_000 * (np.arange(size) == 0))
        case "random":
            return frozen(random.integers(-(10**6), 10**6, size))
        case _:
            return frozen(random.choice([-(2**62), -1, 0, 1, 2**62], size))


def fed(session: Session, round_query: RoundQuery, values: IntArray) -> None:
    session.feed(Release.of(round_query, values, 1.0, ("a",)))


ON_GRIDS: list[tuple[Algorithm, Scaling]] = [(a, Scaling.NONE) for a in Algorithm if a is not Algorithm.OJA]
FRAMED = [(a, Scaling.STANDARD) for a in (Algorithm.GAUSS_COV, Algorithm.EM_COV, Algorithm.PRIVATE_OJA)]


@pytest.mark.parametrize("kind", LIES)
@pytest.mark.parametrize(("algorithm", "scaling"), ON_GRIDS + FRAMED)
def test_no_lie_leads_beyond_them(
    algorithm: Algorithm, scaling: Scaling, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither because the session refuses: an algorithm never comes to such a query."""
    passed: list[str] = []

    def watched(query: q.Query, most: IntArray) -> None:
        try:
            check_bounds(query, most)
        except RequestError as problem:
            passed.append(str(problem))

    monkeypatch.setattr(session_module, "check_bounds", watched)
    random = np.random.default_rng(list(Algorithm).index(algorithm))
    session = Session(a_plan(algorithm, scaling))
    # A mechanism behind the barrier releases a place or a dimension; what is none ends the study.
    with suppress(EigenveilError, IndexError):
        while (round_query := session.pending) is not None and round_query.round < MOST_ROUNDS:
            fed(session, round_query, lie(kind, q.released_length(round_query.query), random))
    assert passed == []


CENTRE = np.zeros(D, dtype=np.int64)
FIELD = q.GradientSpec(
    centre=CENTRE,
    directions=frozen(np.eye(D, 1, dtype=np.int64)),
    offset=frozen(np.zeros((D, 1), dtype=np.int64)),
    shift=0,
)
BEYOND: dict[str, q.Query] = {
    "a tiny sum": q.ClippedSum(centre=CENTRE, radius=least_row_radius(D) - 1),
    "a tiny product": q.Gram(centre=CENTRE, radius=least_row_radius(D) - 1),
    "a tiny gradient": q.Gradient(spec=FIELD, radius=least_gradient_radius(FIELD.offset) - 1),
    "one narrow bin": q.RowNorms(centre=CENTRE, edges=frozen([1])),
    "narrow bins": q.RowNorms(centre=CENTRE, edges=frozen(np.arange(1, 40) * 100)),
    "a tiny sum of squares": q.ColumnMoments(columns=D, radius=least_moments_radius(D) - 1),
    "other columns": q.ColumnMoments(columns=D + 1, radius=2**20),
    "a person far off": q.ClippedSum(centre=frozen([S, 0, 0, 0]), radius=S),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_query_about_one_person_is_beyond_the_bounds(name: str) -> None:
    study = a_plan(Algorithm.GAUSS_COV, Scaling.NONE).study
    with pytest.raises(RequestError):
        check_bounds(BEYOND[name], box(study))


FRAMES = {
    "too few columns": ([0] * (D - 1), [LEAST_FACTOR] * (D - 1)),
    "one column": ([0], [LEAST_FACTOR]),
    "a middle beyond the grid": ([S + 1] + [0] * (D - 1), [LEAST_FACTOR] * D),
    "all rows at 0": ([0] * D, [LEAST_FACTOR - 1] * D),
    "a step too fine": ([0] * D, [MOST_FACTOR + 1] * D),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_beyond_its_limits_shows_nothing(name: str) -> None:
    moments, site = q.ColumnMoments(columns=D, radius=2**20), Site(np.zeros((1, D), dtype=np.int16))
    site.answer(moments, frame=q.Frame(middles=frozen([S] * D), factors=frozen([MOST_FACTOR] * D)))
    with pytest.raises(RequestError):
        site.answer(moments, frame=q.Frame(middles=frozen(FRAMES[name][0]), factors=frozen(FRAMES[name][1])))


def test_through_any_frame_the_farthest_record_is_far_from_0() -> None:
    """So no frame takes everybody out of a sum but those nearby."""
    frame = q.Frame(middles=frozen([-S]), factors=frozen([LEAST_FACTOR]))
    assert apply_frame(np.array([[S]], dtype=np.int16), frame)[0, 0] >= S // 8


@given(d=st.integers(1, 40), data=st.data())
def test_at_the_floor_every_record_still_counts_in_a_sum(d: int, data: st.DataObject) -> None:
    z = data.draw(arrays(np.int64, (1, d), elements=st.integers(-2 * S, 2 * S)))
    norm2 = np.maximum((z**2).sum(axis=1), 1)
    assert (weights(norm2, least_row_radius(d)) >= 1).all()
    assert least_row_radius(d) * WEIGHT < 2 * S * (d + 1)  # and it is no higher than that needs


@st.composite
def slopes(draw: st.DrawFn) -> tuple[IntArray, IntArray, IntArray]:
    d, k = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    z = draw(arrays(np.int64, (1, d), elements=st.integers(-2 * S, 2 * S)))
    a = draw(arrays(np.int64, (1, k), elements=st.integers(-(2**30), 2**30)))
    return z, a, draw(arrays(np.int64, (d, k), elements=st.integers(-(2**14), 2**14)))


AWAY = (
    frozen([[2 * S] * 4]),
    frozen([[-(2**14)]]),
    frozen([[2**15]] * 4),
)  # as far from the pull as it is long


@example(slope=AWAY)
@example(slope=(AWAY[0], frozen([[49]]), frozen([[0]] * 4)))  # 49 (1 / 49) is below 1 in floats
@given(slope=slopes())
def test_at_the_floor_a_clipped_record_still_has_a_gradient(
    slope: tuple[IntArray, IntArray, IntArray],
) -> None:
    z, a, pull = slope
    assume(a.any() and z.any())
    norm2, floats = (z**2).sum(axis=1), z.astype(np.float64)
    pulled = floats @ pull if pull.any() else None
    b, u = gradient_coefficients(
        a.astype(np.float64),
        pulled,
        np.sqrt(norm2),
        norm2,
        float((pull**2).sum()),
        least_gradient_radius(pull),
    )
    assert b.any() or (u is not None and u.any())


def test_a_coordinator_cannot_change_a_query_to_beyond_the_bounds() -> None:
    """One unit is what two machines may differ by, and never what leads below a floor or out of the box."""
    session, random = Session(a_plan(Algorithm.GAUSS_COV, Scaling.NONE)), np.random.default_rng(0)
    while (one := session.pending) is not None and not isinstance(one.query, q.ClippedSum):
        fed(session, one, lie("all at the centre", q.released_length(one.query), random))
    assert one is not None
    assert isinstance(one.query, q.ClippedSum)
    assert one.query.radius == least_row_radius(D)
    less, more = (
        changed_query(one, query=replace(one.query, radius=one.query.radius + by)) for by in (-1, 1)
    )
    with pytest.raises(RequestError, match="below the public floor"):
        session.adopt(less)
    session.adopt(more)

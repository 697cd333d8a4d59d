"""[P9] [P29] Rows through a frame equal those of Python integers, each computed from its record alone."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil import queries as q
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.columns import LEAST_FACTOR, MOST_FACTOR
from eigenveil.queries.gradients import pass_key
from eigenveil.site.record_view import apply_frame
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S
from tests.core import reference
from tests.core.queries import kinds
from tests.core.records import Case, contributions, hostile_rows, judged
from tests.support import DIGEST, a_field, random_rows

ENTRY = st.one_of(st.sampled_from([-S, -1, 0, 1, S]), st.integers(-S, S))
FACTOR = st.one_of(
    st.sampled_from([LEAST_FACTOR, 3 * 2**19, 2**20, MOST_FACTOR]), st.integers(LEAST_FACTOR, MOST_FACTOR)
)


@st.composite
def views(draw: st.DrawFn) -> tuple[GridRows, q.Frame]:
    d, n = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rows = np.array([[draw(ENTRY) for _ in range(d)] for _ in range(n)], dtype=np.int16)
    middles, factors = [draw(ENTRY) for _ in range(d)], [draw(FACTOR) for _ in range(d)]
    return rows, q.Frame(middles=frozen(middles), factors=frozen(factors))


@given(views())
@example(
    (np.array([[3, 1, -1]], dtype=np.int16), q.Frame(middles=frozen([0] * 3), factors=frozen([2**19] * 3)))
)
def test_python_integers_see_the_same(view: tuple[GridRows, q.Frame]) -> None:
    rows, frame = view
    shown = [reference.seen(row, frame) for row in rows.tolist()]
    assert apply_frame(rows, frame).tolist() == shown
    d = rows.shape[1]
    for query in (
        q.ColumnHistograms(columns=d),
        q.ColumnMoments(columns=d, radius=5000),
        q.Gram(centre=frozen([0] * d), radius=S),
    ):
        assert Site(rows).answer(query, frame=frame).tolist() == kinds.answer(shown, query)


def a_frame(d: int, seed: int = 2) -> q.Frame:
    random = np.random.default_rng(seed)
    return q.Frame(
        middles=random.integers(-S, S, d, endpoint=True),
        factors=random.integers(LEAST_FACTOR, 2**22, d, endpoint=True),
    )


def test_no_frame_raises_the_sensitivity_of_a_query() -> None:
    """Any frame maps one record to one record of the same box."""
    cases = []
    for d in (1, 2, 5):
        centre = frozen(np.zeros(d, dtype=np.int64))
        rows = hostile_rows(400, centre, 4000, d)
        queries = (q.ClippedSum(centre=centre, radius=S), q.Gram(centre=centre, radius=S))
        columns = (q.ColumnHistograms(columns=d), q.ColumnMoments(columns=d, radius=2**14))
        cases += [Case(query=query, rows=rows) for query in (*queries, *columns)]
    for seed in range(4):

        def framed(rows: GridRows, query: q.AdditiveQuery, s: int = seed) -> IntArray:
            return Site(rows).answer(query, frame=a_frame(rows.shape[1], s))

        answered = [(case.query, contributions(case, framed)) for case in cases]
        assert all(judged(answered, neighbours).worst <= 1 for neighbours in Neighbours)


def test_an_answer_uses_the_frame_of_its_own_query() -> None:
    rows, site = random_rows(50, 3), Site(random_rows(50, 3))
    queries = (
        q.Gram(centre=frozen([0] * 3), radius=S),
        q.Gradient(spec=a_field(3, 1), radius=2**27),
        q.ColumnMoments(columns=3, radius=900),
    )
    for frame in (None, a_frame(3, 1), a_frame(3, 2), None, a_frame(3, 1)):
        for query in queries:
            fresh = Site(rows).answer(query, frame=frame)
            assert site.answer(query, frame=frame).tolist() == fresh.tolist()


def test_a_frame_moves_no_record_to_another_batch() -> None:
    """A pass pays once for batches that share nobody, even where each is asked through another frame."""
    rows, key = random_rows(80, 3), pass_key(DIGEST, 0, 5)
    spec = a_field(3, 1)
    for record in rows:
        counted = 0
        for i in range(5):
            batch = q.Batch(first_round=0, index=i, batches=5, key=key)
            query = q.GradientNorms(spec=spec, edges=frozen([1]), batch=batch)
            restarted = Site(record[None, :])  # it keeps no dealing of another frame
            counted += int(restarted.answer(query, frame=a_frame(3, i)).sum())
        assert counted == 1

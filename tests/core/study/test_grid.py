"""[P1] Records on the grid are integers of [-S, S], each computed from its own record alone."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eigenveil.errors import Code, EigenveilError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.site.record_view import to_grid
from eigenveil.study.checks import WIDEST
from eigenveil.study.grid import S, offsets, steps, stored_dtype, unit
from eigenveil.study.study import Column, Missing, Scaling, Study
from tests.support import a_column, a_study, refused

NAN, INF, MOST = math.nan, math.inf, sys.float_info.max

wild = st.one_of(
    st.floats(allow_nan=True, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.7e308, -1.7e308, 1e16, NAN]),
)


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    """Any bounds that a study accepts, the near and the far ones included."""
    low = draw(st.one_of(st.floats(-WIDEST, WIDEST), st.floats(-1e9, 1e9), st.just(0.0)))
    width = draw(st.one_of(st.floats(0, WIDEST), st.floats(-200, 100).map(lambda x: 10.0**x)))
    fill = draw(st.floats(0, 1))
    try:
        plain = a_column(name, low, low + width)
        filled = min(max(low + fill * width, plain.lower), plain.upper)
        return a_column(name, low, low + width, fill=filled)
    except EigenveilError:
        assume(False)
        raise


@st.composite
def problems(draw: st.DrawFn) -> tuple[Study, FloatArray]:
    """A study and records with values near, at and beyond its bounds, and wild ones."""
    d = draw(st.integers(1, 3))
    parts = tuple(draw(columns(f"c{i}")) for i in range(d))
    study = a_study(
        columns=parts,
        missing=draw(st.sampled_from(Missing)),
        scaling=draw(st.sampled_from(Scaling)),
        grid_steps=2 ** draw(st.integers(0, 12)),
    )
    n = draw(st.integers(0, 5))
    values = np.empty((n, d))
    for j, column in enumerate(parts):
        edges = [column.lower, column.upper, column.middle, np.nextafter(column.upper, -INF)]
        entry = st.one_of(wild, st.sampled_from(edges), st.floats(column.lower, column.upper))
        values[:, j] = [draw(entry) for _ in range(n)]
    return study, values


@given(problems())
def test_rows_are_integers_of_the_box(problem: tuple[Study, FloatArray]) -> None:
    study, values = problem
    rows = to_grid(values, study)
    assert rows.dtype == stored_dtype(study)
    assert (np.abs(rows.astype(int)) <= study.grid_steps).all()
    assert study.grid_steps * unit(study) == S
    missing = int(np.isnan(values).any(axis=1).sum())
    assert len(rows) == len(values) - (missing if study.missing is Missing.DROP else 0)


@given(problems())
def test_a_row_depends_on_its_own_record_alone(problem: tuple[Study, FloatArray]) -> None:
    study, values = problem
    single = [to_grid(values[i : i + 1], study) for i in range(len(values))]
    combined = to_grid(values, study)
    assert combined.tolist() == [row for part in single for row in part.tolist()]
    assert to_grid(values[::-1], study).tolist() == combined.tolist()[::-1]
    assert to_grid(np.asfortranarray(values), study).tolist() == combined.tolist()


@given(problems())
def test_bounds_go_to_the_ends_and_beyond_them_nothing_changes(problem: tuple[Study, FloatArray]) -> None:
    study, _ = problem
    low, high = ([getattr(c, side) for c in study.columns] for side in ("lower", "upper"))
    ends = to_grid(np.array([low, high]), study)
    far = study.grid_steps
    if study.scaling is Scaling.BOUNDS:
        assert ends.tolist() == [[-far] * study.dimension, [far] * study.dimension]
    assert (ends[0].astype(int) == -ends[1].astype(int)).all()
    assert np.abs(ends).max() == far
    beyond = to_grid(np.array([[-MOST] * study.dimension, [MOST] * study.dimension]), study)
    assert beyond.tolist() == ends.tolist()


def test_more_rows_than_one_block() -> None:
    values = np.random.default_rng(3).uniform(-5, 105, (20_000, 3))
    whole = to_grid(values, a_study())
    assert (whole[8191:8194] == to_grid(values[8191:8194], a_study())).all()
    assert (whole == to_grid(values[::-1], a_study())[::-1]).all()


@pytest.mark.parametrize(
    ("rule", "wanted"), [(Missing.DROP, [[-S, 0]]), (Missing.FILL, [[-S, 0], [-S, 0], [0, S]])]
)
def test_missing_values_follow_the_rule(rule: Missing, wanted: list[list[int]]) -> None:
    study = a_study(columns=(a_column("a", fill=0.0), a_column("b", fill=100.0)), missing=rule)
    assert to_grid(np.array([[0.0, 50.0], [NAN, 50.0], [50.0, NAN]]), study).tolist() == wanted


@pytest.mark.parametrize("scaling", Scaling)
@pytest.mark.parametrize("grid_steps", [1, 64, 128, S])
def test_the_grid_is_read_back_to_half_a_step(scaling: Scaling, grid_steps: int) -> None:
    columns = (a_column("a", -3.0, 9.0), a_column("b", 0.0, 1.0))
    study = a_study(columns=columns, scaling=scaling, grid_steps=grid_steps)
    values, step = np.random.default_rng(2).uniform([-3, 0], [9, 1], (500, 2)), steps(study) * unit(study)
    back = to_grid(values, study) * step + offsets(study)
    assert (np.abs(back - values) <= 0.5001 * step).all()


@pytest.mark.parametrize("bad", [INF, -INF])
def test_an_infinite_value_is_refused_by_column_name(bad: float) -> None:
    with refused(Code.BAD_DATA, "c1", "mark them as missing"):
        to_grid(np.array([[1.0, bad, NAN]]), a_study())


@pytest.mark.parametrize("shape", [(0, 2), (5, 4), (3,), (), (1, 3, 1)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with refused(Code.BAD_DATA, "3 columns"):
        to_grid(np.zeros(shape), a_study())


def test_a_refusal_does_not_reveal_the_number_of_records() -> None:
    with pytest.raises(EigenveilError) as caught:
        to_grid(np.zeros((4711, 4)), a_study())
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(0.0, 5e-324), (0.0, 1e-319), (1e15, 1e15 + 0.125), (1e15, 1e15 + 1), (-1e-300, 1e-300)],
)
def test_bounds_too_close_for_floats_are_refused(lower: float, upper: float) -> None:
    """Found by these tests: rounding of the middle and the step took such rows out of [-S, S]."""
    with refused(Code.BAD_STUDY, "too close", "change its unit"):
        a_column("a", lower, upper)

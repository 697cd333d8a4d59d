"""What a study may state of its records' length, and the sentence about a norm that says nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code
from eigenveil.queries.limits import least_row_radius
from eigenveil.site.record_view import to_grid
from eigenveil.study.algorithm import PROPERTIES, Algorithm
from eigenveil.study.grid import S
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Scaling
from tests.support import a_column, a_plan, a_study, refused

HALVES = [60.0, 5.0, 0.5]
COLUMNS = tuple(a_column(f"x{i}", -half, half) for i, half in enumerate(HALVES))


@pytest.mark.parametrize("scaling", [Scaling.BOUNDS, Scaling.NONE])
@given(factor=st.floats(0.5, 2.0))
def test_a_norm_that_shortens_no_record_is_called_idle_and_no_other(scaling: Scaling, factor: float) -> None:
    """The longest record there can be lies in a corner of the public bounds."""
    plain = a_study(columns=COLUMNS, scaling=scaling, components=1)
    corner = float(np.linalg.norm(to_grid(np.array([HALVES]), plain)[0].astype(float))) / S
    study = a_study(columns=COLUMNS, scaling=scaling, components=1, radius=PublicNorm(norm=corner * factor))
    idle = any("has no effect" in sentence for sentence in study.warnings())
    if abs(factor - 1) > 0.001:  # about a grid step
        assert idle == (factor > 1)
    assert not plain.warnings()


@pytest.mark.parametrize("d", [1, 3, 40])
def test_a_norm_below_the_public_floor_is_refused_before_anything_is_asked(d: int) -> None:
    columns, floor = tuple(a_column(f"x{i}") for i in range(d)), least_row_radius(d) / S
    a_plan(columns=columns, components=1, radius=PublicNorm(norm=floor))
    with refused(Code.BAD_STUDY, "below the minimum"):
        a_plan(columns=columns, components=1, radius=PublicNorm(norm=np.nextafter(floor, 0)))


@pytest.mark.parametrize("algorithm", [a for a in PROPERTIES if not PROPERTIES[a].clips_rows])
def test_what_shortens_no_row_takes_no_norm(algorithm: Algorithm) -> None:
    with refused(Code.BAD_STUDY, "takes no public norm"):
        a_plan(algorithm=algorithm, sites=("north",), radius=PublicNorm(norm=1.0))

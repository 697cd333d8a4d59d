"""[P1] The sensitivity checker catches planted clipping faults.

Every test runs `records.verdict`, the check of test_conformance, on a faulty kernel and asserts
that it fails there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.queries import AdditiveQuery, ClippedSum, CrossCovariance, Gradient, Gram, SquaredNormSum
from eigenveil.queries.limits import OFFSET_STEPS, WEIGHT
from eigenveil.study.grid import GridRows
from tests.core import reference
from tests.core.queries.cases import cross_cases, gradient_cases, row_cases
from tests.core.records import Answer, Case, site_answer, verdict

KINDS: dict[str, Callable[[], list[Case]]] = {
    "clipped-sum": lambda: row_cases(ClippedSum),
    "squared-norm-sum": lambda: row_cases(SquaredNormSum),
    "gram": lambda: row_cases(Gram),
    "gradient": lambda: gradient_cases(2, pulls=False),
    "gradient, pull": lambda: gradient_cases(2, pulls=True),
    "cross-covariance": lambda: cross_cases(2),
}


def triangle(rows: FloatArray) -> FloatArray:
    """z z^T of one row, as a Gram answer is laid out."""
    full = np.outer(rows[0], rows[0])
    return np.concatenate([np.diagonal(full), full[np.triu_indices(len(full), 1)]])


def kernel(clip: Callable[[FloatArray, float], FloatArray]) -> Answer:
    """One record's answer, with `clip(vector, radius)` in place of the honest clipping."""

    def answer(rows: GridRows, query: AdditiveQuery) -> IntArray:
        match query:
            case ClippedSum():
                out = WEIGHT * clip(rows - query.centre.astype(float), query.radius)
            case SquaredNormSum():
                z = clip(rows - query.centre.astype(float), query.radius)
                out = (z * z).sum(axis=1)
            case Gram():
                out = triangle(clip(rows - query.centre.astype(float), query.radius))
            case Gradient():
                z = rows - query.spec.centre.astype(float)
                a = z @ query.spec.directions * 2.0**-query.spec.shift
                out = clip((z.T @ a - OFFSET_STEPS * query.spec.offset).reshape(1, -1), query.radius)
            case CrossCovariance():
                record = reference.beside(rows[0].tolist(), query.spec)
                out = clip(np.outer(record.z, record.a).reshape(1, -1), query.radius)
            case _:
                raise TypeError(f"no faulty kernel for {query}")
        return frozen(np.rint(np.clip(out, -(2.0**61), 2.0**61)).astype(np.int64).reshape(-1))

    return answer


def no_clip(rows: FloatArray, radius: float) -> FloatArray:
    return rows


def clip_before_rounding(rows: FloatArray, radius: float) -> FloatArray:
    """A float row of norm at most R, which rounding to integers then lengthens."""
    return np.rint(rows * np.minimum(1, radius / max(float(np.linalg.norm(rows)), 1.0)))


def clip_each_entry(rows: FloatArray, radius: float) -> FloatArray:
    return np.clip(rows, -radius, radius)


def caught(
    kind: str,
    neighbours: Neighbours,
    answer: Answer = site_answer,
    declared: Callable[[AdditiveQuery], int] | None = None,
) -> bool:
    """Whether the checker finds fault with any case; it need not see the others then."""
    return any(verdict([case], neighbours, answer, declared).worst > 1 for case in KINDS[kind]())


@pytest.mark.parametrize("clip", [no_clip, clip_before_rounding, clip_each_entry])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_way_to_clip_is_caught(kind: str, clip: Callable[[FloatArray, float], FloatArray]) -> None:
    assert caught(kind, Neighbours.ADD_REMOVE, kernel(clip))


@pytest.mark.parametrize("kind", KINDS)
def test_half_the_sensitivity_or_that_of_the_other_relation_is_caught(kind: str) -> None:
    def half(query: AdditiveQuery) -> int:
        return max(1, query.l2_squared(Neighbours.ADD_REMOVE) // 4)

    assert caught(kind, Neighbours.ADD_REMOVE, declared=half)
    if kind != "squared-norm-sum":  # which moves as far under either relation
        other = caught(
            kind, Neighbours.REPLACE_ONE, declared=lambda query: query.l2_squared(Neighbours.ADD_REMOVE)
        )
        assert other

"""Whether two machines ask the same query, although their linear algebra may differ in the last bit.

Queries are computed in float64 from the plan and the releases, then rounded to integers. Two builds of
BLAS, or two processors, may round a number that lies on a boundary to either side; nothing else may differ.
"""

from __future__ import annotations

import numpy as np

from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.query import RoundQuery, flatten
from eigenveil.queries.columns import same_frame

# What floats decide, each to the last unit that they resolve. Everything else is equal or another question.
ROUNDED = frozenset(
    {"centre", "directions", "offset", "scales", "kept", "middles", "halves", "radius", "width"}
)
EDGES = "edges"  # equal, except where they are so large that a float64 has no unit of 1 any more
FLOAT = 2.0**-50  # a few units in the last place of a float64, relative to it


def same_question(mine: RoundQuery, theirs: RoundQuery) -> bool:
    """Whether `theirs` is `mine`, but for the last unit of rounded floats.

    Kind, plan, round, price, noise law, frame, shapes and every number that floats do not decide must be
    equal.
    """
    left, right = flatten(mine.query), flatten(theirs.query)
    same = _head(mine) == _head(theirs) and left.keys() == right.keys()
    same = same and same_frame(mine.frame, theirs.frame)
    return same and all(_near(name, left[name], right[name]) for name in left)


def _head(asked: RoundQuery) -> tuple[object, ...]:
    return (type(asked.query), asked.plan_digest, asked.round, asked.price, asked.law)


def _near(path: str, mine: object, theirs: object) -> bool:
    name = path.rpartition(".")[2]
    if not isinstance(mine, np.ndarray | int) or isinstance(mine, bool):
        return mine == theirs
    left, right = np.asarray(mine), np.asarray(theirs)
    if left.shape != right.shape:
        return False
    if name in ROUNDED:
        return _within(left, right, 1)
    return _within(left, right, 0) if name == EDGES else bool((left == right).all())


def _within(left: IntArray, right: IntArray, units: int) -> bool:
    room = np.maximum(units, np.abs(right.astype(np.float64)) * FLOAT)
    return bool((np.abs(left.astype(np.float64) - right.astype(np.float64)) <= room).all())

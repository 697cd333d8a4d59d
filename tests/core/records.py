"""Records that try to exceed a sensitivity, and the exact measure of the excess. `worst` is the checker that
both the honest and the planted-fault tests run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray
from eigenveil.queries import AdditiveQuery, Gram
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S
from tests.support import a_column, a_study

Answer = Callable[[GridRows, AdditiveQuery], IntArray]
Integers = NDArray[Any]


def site_answer(rows: GridRows, query: AdditiveQuery) -> IntArray:
    return Site(rows).answer(query)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query and records to try on it; records 2 i and 2 i + 1 are meant for each other."""

    query: AdditiveQuery
    rows: GridRows


def contributions(case: Case, answer: Answer = site_answer) -> Integers:
    """Each record's own answer, as Python integers; equal records answer once. Shape: (n, ask.length)."""
    rows, which = np.unique(case.rows, axis=0, return_inverse=True)
    single = [answer(rows[i : i + 1], case.query) for i in range(len(rows))]
    return np.array(single).astype(object)[which]


def squares(query: AdditiveQuery, changes: Integers) -> Integers:
    """Exact squared length of each change, Frobenius for a Gram matrix. Shape: (m, length) -> (m,)."""
    weights = np.ones(query.length, dtype=object)
    if isinstance(query, Gram):
        weights[query.centre.size :] = 2
    return (changes * changes) @ weights


def changes(each: Integers, neighbours: Neighbours, seed: int = 5) -> Integers:
    """Change of the answer, for each neighbour pair tried. add-remove: every record joins (or leaves) a data
    set. replace-one: each record against its partner, and against others at random. That the rest of the data
    set does not matter is `test_conformance.test_a_record_adds_its_own_answer_whatever_else_is_there`."""
    if neighbours is Neighbours.ADD_REMOVE:
        return each
    rng = np.random.default_rng(seed)
    return np.concatenate([each[0::2] - each[1::2], each - rng.permutation(each)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Count of tried pairs, and the largest squared change over the declared square."""

    pairs: int
    worst: Fraction


def verdict(
    cases: Sequence[Case],
    neighbours: Neighbours,
    answer: Answer = site_answer,
    declared: Callable[[AdditiveQuery], int] | None = None,
) -> Verdict:
    """Try every case; `declared` replaces the query's own claim in tests of this checker."""
    return judged([(case.query, contributions(case, answer)) for case in cases], neighbours, declared)


def judged(
    answered: Sequence[tuple[AdditiveQuery, Integers]],
    neighbours: Neighbours,
    declared: Callable[[AdditiveQuery], int] | None = None,
) -> Verdict:
    """The verdict on queries whose `contributions` are known: either relation pairs the same records."""
    pairs, worst = 0, Fraction(0)
    for query, each in answered:
        claim = declared(query) if declared else query.l2_squared(neighbours)
        tried = squares(query, changes(each, neighbours))
        pairs += len(tried)
        worst = max(worst, Fraction(int(tried.max()), claim))
    return Verdict(pairs=pairs, worst=worst)


def hostile_rows(n: int, centre: IntArray, radius: int, seed: int) -> GridRows:
    """Records of every hostile sort, in pairs that mirror each other in the centre. All at the bound,
    one-hot, exactly at the clip radius and one step beyond, zero, duplicates, tiny, random, grazing (small in
    the first columns, large in the rest), and subnormal floats that came through the grid. Shape: (n, d) with
    n even."""
    rng, d = np.random.default_rng(seed), centre.size
    half = n // 2
    sorts = [
        rng.choice([-S, S], (half, d)),
        _one_hot(half, d, np.array([S, radius, radius + 1, 1]), rng),
        _on_the_sphere(half, d, radius, rng),
        rng.integers(-S, S, (half, d), endpoint=True),
        rng.integers(-2, 2, (half, d), endpoint=True),
        _grazing(half, d, rng),
        np.zeros((half, d), dtype=np.int64),
        np.tile(rng.integers(-S, S, d, endpoint=True), (half, 1)),
        _subnormal(half, d, rng),
    ]
    z = np.concatenate(sorts)[rng.permutation(len(sorts) * half)[:half]]
    flips = np.where(rng.integers(0, 2, (half, 1)) == 0, -1, _flips(d))
    rows = np.empty((n, d), dtype=np.int64)
    rows[0::2], rows[1::2] = centre + z, centre + flips * z
    return np.clip(rows, -S, S).astype(np.int16)


def _flips(d: int) -> Integers:
    signs = -np.ones(d, dtype=np.int64)
    signs[: min(2, d - 1)] = 1
    return signs


def _one_hot(n: int, d: int, lengths: Integers, rng: np.random.Generator) -> Integers:
    out = np.zeros((n, d), dtype=np.int64)
    out[np.arange(n), rng.integers(0, d, n)] = rng.choice(lengths, n) * rng.choice([-1, 1], n)
    return out


def _on_the_sphere(n: int, d: int, radius: int, rng: np.random.Generator) -> Integers:
    """(3, 4) R / 5 in two columns, and a third one off by a step for half of them."""
    out = np.zeros((n, d), dtype=np.int64)
    out[:, 0], out[:, min(1, d - 1)] = 3 * radius // 5, 4 * radius // 5
    out[::2, -1] += 1
    return rng.permuted(out, axis=1) * rng.choice([-1, 1], (n, d))


def _grazing(n: int, d: int, rng: np.random.Generator) -> Integers:
    out = rng.choice([-S, S], (n, d))
    first = min(2, d - 1)
    out[:, :first] = rng.integers(-S // 16, S // 16, (n, first))
    return out


def _subnormal(n: int, d: int, rng: np.random.Generator) -> Integers:
    """Floats next to zero, on columns around zero and on columns that begin there."""
    lower = [(-1.0, 0.0)[i % 2] for i in range(d)]
    study = a_study(columns=tuple(a_column(f"c{i}", low, 1.0) for i, low in enumerate(lower)))
    floats = rng.choice([5e-324, -5e-324, 2.2e-308, 0.0, -0.0], (n, d))
    return to_grid(floats, study).astype(np.int64)

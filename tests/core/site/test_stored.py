"""[P1] The answer does not depend on how rows are stored: one byte or two a value, in memory or in slices."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil import queries as q
from eigenveil.numerics.encoding import ExactSum, frozen
from eigenveil.queries.columns import FRAME_BITS
from eigenveil.site import sums as row_sums
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S
from tests.core.queries.kinds import every_query
from tests.support import random_rows

UNITS = [64, 512, S]
KINDS = every_query()


@dataclass
class Slices:
    """Rows that give slices from the front to the back and nothing else, as a file would."""

    rows: GridRows
    read: int = field(default=0)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.rows.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, here: slice, /) -> GridRows:
        assert (here.step, here.start) == (None, self.read)
        self.read = here.stop
        return self.rows[here].copy()


def coarse(unit: int, n: int = 150, d: int = 4) -> GridRows:
    most = S // unit
    return np.random.default_rng(unit).integers(-most, most, (n, d), dtype=np.int8, endpoint=True)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", KINDS)
def test_one_byte_per_value_gives_the_answer_of_two_bytes_on_the_fine_grid(name: str, unit: int) -> None:
    rows, query = coarse(unit), KINDS[name]
    wide = rows.astype(np.int16) * np.int16(unit)
    assert Site(rows, unit=unit, workers=2).answer(query).tolist() == Site(wide).answer(query).tolist()


@pytest.mark.parametrize("name", KINDS)
def test_a_sum_takes_each_row_once_from_the_front_to_the_back(name: str) -> None:
    query, rows = KINDS[name], random_rows(900, 4)
    if q.needs_all_rows(query):
        pytest.skip("told so by its kind")
    stored = Slices(rows)
    assert Site(stored, chunk=37).answer(query).tolist() == Site(rows).answer(query).tolist()
    assert stored.read in (0, len(rows))  # a count reads none


@settings(max_examples=30)
@given(st.integers(1, 2**51), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_a_sum_is_exact_at_any_number_of_records(bound: int, sizes: list[int]) -> None:
    """Each product as large as its records allow: added up in floats alone, this would round."""
    total, wanted = ExactSum((2,), bound), 0
    for size in (min(size, total.most) for size in sizes):
        total.add(np.array([float(bound * size - 1), -float(bound * size - 1)]), size)
        wanted += bound * size - 1
    assert total.total().tolist() == [wanted, -wanted]


def test_a_wide_gram_matrix_takes_a_few_answers_of_memory_and_leaves_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_sums, "BLOCK", 128)
    query, site = q.Gram(centre=frozen([0] * 1500), radius=S), Site(random_rows(50, 1500), workers=2)
    size = 8 * query.length
    tracemalloc.start()
    try:
        remaining = site.answer(query)
        after, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert remaining.nbytes == size
    assert after < 1.1 * size
    assert most < 4.5 * size


def test_a_gram_matrix_that_is_asked_for_again_takes_no_pass_and_another_one_does() -> None:
    rows, centre = random_rows(60, 3), frozen([1, 2, 3])
    stored, read = Slices(rows), []
    site = Site(stored)
    frames = [q.Frame(middles=frozen([m, 0, 0]), factors=frozen([2**FRAME_BITS] * 3)) for m in (0, 5)]
    other = frozen([3, 2, 1])  # each differs from the one before in one place
    asked = [(centre, S, None), (centre, S, None), (other, S, None), (other, S // 2, None)]
    for middle, radius, frame in [*asked, *((other, S // 2, frame) for frame in frames)]:
        query = q.Gram(centre=middle, radius=radius)
        stored.read = 0
        assert site.answer(query, frame=frame).tolist() == Site(rows).answer(query, frame=frame).tolist()
        read.append(stored.read)
    assert read == [60, 0, 60, 60, 60, 60]


@pytest.mark.parametrize("d", [3, 100, 5000])
def test_an_answer_makes_and_retains_no_copy_of_the_records(d: int) -> None:
    rows = np.zeros((2**24 // d, d), dtype=np.int16)  # 32 MiB, which a float64 copy makes 128
    site, centre = Site(rows, workers=2), frozen(np.ones(d, dtype=int))
    spec = q.GradientSpec(
        centre=centre, directions=np.ones((d, 1)).astype(int), offset=np.ones((d, 1)).astype(int), shift=0
    )
    queries: list[q.Query] = [q.Gradient(spec=spec, radius=2**20), q.ClippedSum(centre=centre, radius=S)]
    queries += [q.Gram(centre=centre, radius=S)] if d == 100 else []
    for query in queries:
        tracemalloc.start()
        with ThreadPoolExecutor(2) as pool:  # a thread may hold its last part until it ends
            site.answer(query, pool.map)
        remaining, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < rows.nbytes / 2
        assert remaining < 2**20

"""[P1] Compiled kernels return the integers of the numpy kernels for any rows and queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.site.kernels import record_chunks
from eigenveil.site.kernels.record_chunks import (
    CompiledChunk,
    CompiledChunkBuffer,
    NumpyChunk,
    NumpyChunkBuffer,
)
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows, S
from tests.core.queries import kinds
from tests.core.queries.kinds import every_query
from tests.core.records import hostile_rows
from tests.support import random_rows

KERNELS = record_chunks.load_kernels()
needs_kernels = pytest.mark.skipif(KERNELS is None, reason="installed without a compiler")
COLUMNS = [1, 2, 7, 8, 9, 20, 31, 32, 33, 57, 63, 64, 65, 100, 255, 256, 257, 600]
KINDS = every_query()


@st.composite
def chunks(draw: st.DrawFn) -> tuple[GridRows, IntArray, int]:
    """Rows, all kinds of them at both ends of the box, a centre, and what a stored integer counts for."""
    unit = draw(st.sampled_from([1, 2, 64, 512, S]))
    narrow = unit >= 64 and draw(st.booleans())
    m, d, most = draw(st.integers(0, 13)), draw(st.sampled_from(COLUMNS)), S // unit
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    entries = [random.integers(-most, most, (m, d), endpoint=True), random.choice([-most, 0, most], (m, d))]
    centre = [random.integers(-S, S, d, endpoint=True), random.choice([-S, S], d)]
    rows = draw(st.sampled_from(entries)).astype(np.int8 if narrow else np.int16)
    return laid(draw(st.sampled_from(LAYOUTS)), rows), draw(st.sampled_from(centre)), unit


LAYOUTS = ["plain", "read-only", "reversed", "by column", "unaligned"]


def laid(layout: str, rows: GridRows) -> GridRows:
    if layout == "unaligned":
        raw = np.frombuffer(b"x" + rows.tobytes(), dtype=np.uint8)[1:]
        rows = raw.view(rows.dtype).reshape(rows.shape)
    elif layout == "reversed":
        rows = rows[::-1].copy()[::-1]
    elif layout == "by column":
        rows = np.asfortranarray(rows)
    elif layout == "read-only":
        rows.setflags(write=False)
    return rows


def both(rows: GridRows, centre: IntArray, unit: int) -> tuple[CompiledChunk, NumpyChunk]:
    assert KERNELS is not None
    size = len(rows) + 1
    return CompiledChunkBuffer(KERNELS, size, centre, unit).chunk(rows), NumpyChunkBuffer(
        size, centre, unit
    ).chunk(rows)


def same(left: FloatArray, right: FloatArray) -> bool:
    return left.shape == right.shape and bool((left == right).all())


@needs_kernels
@settings(max_examples=300)
@given(chunks(), st.integers(0, 9), st.integers(0, 40), st.integers(0, 2**32))
def test_products_are_the_same(chunk: tuple[GridRows, IntArray, int], k: int, shift: int, seed: int) -> None:
    compiled, plain = both(*chunk)
    m, d = chunk[0].shape
    random = np.random.default_rng(seed)
    matrix = random.integers(-(2**20), 2**20, (d, k)).astype(np.float64) * 2.0**-shift
    b = np.asfortranarray(random.integers(-(2**28), 2**28, (m, k)).astype(np.float64))
    for mine, theirs in zip(compiled.project(matrix), plain.project(matrix), strict=True):
        assert same(mine, theirs)
    assert same(compiled.weighted_sum(b), plain.weighted_sum(b))
    assert same(compiled.weighted_sum(b[:, ::-1]), plain.weighted_sum(b[:, ::-1]))
    assert same(compiled.squared_norms(), plain.squared_norms())
    assert same(compiled.wide(), plain.wide())


@needs_kernels
@pytest.mark.parametrize("d", [1, 31, 32, 33, 63, 64, 65, 96, 600])
@pytest.mark.parametrize(("dtype", "unit"), [(np.int16, 1), (np.int8, 64)])
def test_norms_of_the_longest_records_are_exact(d: int, dtype: type[np.int16 | np.int8], unit: int) -> None:
    corner = S // unit if dtype is np.int16 else -(S // unit)
    rows = np.full((5, d), corner, dtype=dtype)
    compiled, plain = both(rows, np.full(d, -corner * unit, dtype=np.int64), unit)
    assert compiled.squared_norms().tolist() == plain.squared_norms().tolist() == [d * (2 * S) ** 2] * 5


@needs_kernels
@settings(max_examples=300)
@given(chunks(), st.one_of(st.integers(1, 2 * S), st.integers(1, 2**18)))
def test_clipped_rows_are_the_same(chunk: tuple[GridRows, IntArray, int], radius: int) -> None:
    compiled, plain = both(*chunk)
    assert same(compiled.clipped(radius), plain.clipped(radius))


@st.composite
def pulls(draw: st.DrawFn) -> tuple[FloatArray, FloatArray | None, FloatArray, float, int]:
    """Inputs of `gradient_coefficients`: records far within the radius, about it and far beyond it, and
    proposals whose squares no int64 holds."""
    m, k = draw(st.integers(0, 600)), draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    norm2 = np.floor(2.0 ** random.uniform(0, draw(st.integers(0, 38)), m)) * (random.random(m) > 0.1)
    a = random.normal(size=(k, m)) * 2.0 ** random.uniform(-4, draw(st.integers(-3, 53)), m)
    offset2 = float(draw(st.integers(1, 2**34)))
    project = random.uniform(-1, 1, (k, m)) * np.sqrt(norm2 * offset2) * draw(st.sampled_from([1, 4]))
    radius = draw(st.one_of(st.integers(1, 2**29), st.sampled_from([1, 2**20, 2**28, 2**29])))
    if draw(st.booleans()):
        return a.T, None, norm2, 0.0, radius
    return a.T, np.trunc(project).T, norm2, offset2, radius


@needs_kernels
@settings(max_examples=400)
@given(pulls())
def test_clipped_gradients_are_the_same(
    query: tuple[FloatArray, FloatArray | None, FloatArray, float, int],
) -> None:
    compiled, plain = both(np.zeros((len(query[0]), 1), dtype=np.int16), np.zeros(1, dtype=np.int64), 1)
    (b, u), (b_plain, u_plain) = compiled.coefficients(*query), plain.coefficients(*query)
    assert same(b, b_plain)
    assert u is u_plain is None or (u is not None and u_plain is not None and same(u, u_plain))


@needs_kernels
def test_inconsistent_shapes_are_refused_before_memory_is_read() -> None:
    assert KERNELS is not None
    space = CompiledChunkBuffer(KERNELS, 4, np.zeros(3, dtype=np.int64), 1)
    wrong: list[Any] = [
        np.zeros((4, 2), dtype=np.int16),
        np.zeros((4, 3), dtype=np.int32),
        np.zeros((5, 3), dtype=np.int8),
    ]
    for rows in wrong:
        with pytest.raises(ValueError, match="rows of"):
            space.chunk(rows)
    chunk = space.chunk(np.zeros((4, 3), dtype=np.int16))
    for matrix in (np.zeros((2, 1)), np.zeros((1, 1))):
        with pytest.raises(ValueError, match="matrix"):
            chunk.project(matrix)
    ones = np.ones((4, 2))
    for a, away, norm2 in (
        (ones, ones[:, :1], ones[:, 0]),
        (ones, ones, ones[:3, 0]),
        (ones, None, ones[1:, 0]),
    ):
        with pytest.raises(ValueError, match="shapes"):
            chunk.coefficients(a, away, norm2, 1.0, 1)
    with pytest.raises(ValueError, match="coefficients"):
        chunk.weighted_sum(np.zeros((3, 1)))


@pytest.mark.usefixtures("numpy_alone")
@pytest.mark.parametrize("name", KINDS)
def test_numpy_alone_agrees_with_python_integers(name: str) -> None:
    rows = np.concatenate([random_rows(200, 4), hostile_rows(200, np.zeros(4, dtype=np.int64), S, 2)])
    assert Site(rows).answer(KINDS[name]).tolist() == kinds.answer(rows.tolist(), KINDS[name])

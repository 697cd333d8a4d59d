"""Fingerprints of subspaces: which records vote together with one, and what a released one stands for."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray, IntArray, digest
from eigenveil.numerics.linalg import fix_signs
from eigenveil.numerics.normal import quantiles
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import numbered
from eigenveil.queries.limits import check_centre, check_whole, freeze, need
from eigenveil.study.study import MAX_SITES

PRIME = 2**61 - 1  # spans are taken over the integers modulo this Mersenne prime
WORDS = 4  # 64-bit words of a SHA-256 fingerprint; all zero says "no vote"
MOST_RANK = 256  # keeps products of a row with half a reduced row exact in float64
MOST_SUBSAMPLES = 2**16
MOST_POINTS = 2 * MOST_RANK + 2
POINT_STEP = 2.0**-20  # points lie on a grid, so that another mathematical library gives the same ones
CELL_BITS = 32  # the width of a cell is a whole number of 2^-32
MOST_SUBSETS = 2**15  # spans that subspace-reference may have to look at


def fingerprint(values: IntArray) -> IntArray:
    """SHA-256 of an integer vector as four words. Shape: (m,) -> (4,)."""
    return np.frombuffer(bytes.fromhex(digest("subspace", {}, (values,))), dtype="<i8").astype(np.int64)


def check_public(query: object) -> None:
    """Public but for the centre: any such question is an honest study's."""


def _check_dealt(owner: Subsamples | Cells | Pool) -> None:
    """What all three have in common; freezes their arrays."""
    freeze(owner, "centre", "key")
    check_centre(owner.centre)
    check_whole("dimension", owner.rank, 1, min(owner.centre.size, MOST_RANK))
    need(owner.key.shape == (4,), "records are dealt into subsamples with a key of four integers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subsamples:
    """How each site deals its records into `count` subsamples, and the dimension their spans are asked for.

    Shape: centre (d,), key (4,).
    """

    centre: IntArray
    rank: int
    count: int
    key: IntArray

    def __post_init__(self) -> None:
        _check_dealt(self)
        check_whole("number of subsamples", self.count, 1, MOST_SUBSAMPLES)

    @property
    def size(self) -> int:
        """Integers of a reduced row echelon form: rank d."""
        return self.rank * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """How each site deals its records into `count` subsamples, and the grid that their directions fall on.

    A subsample's projector onto its `rank` leading directions moves `points` public points of R^d; where they
    land is a cell of width `width` / 2^32 in every one of points * d coordinates. Points and the grid's
    offset follow from the key.

    Shape: centre (d,), key (4,).
    """

    centre: IntArray
    rank: int
    count: int
    key: IntArray
    points: int
    width: int

    def __post_init__(self) -> None:
        _check_dealt(self)
        check_whole("number of subsamples", self.count, 1, MOST_SUBSAMPLES)
        check_whole("number of points", self.points, 1, MOST_POINTS)
        check_whole("cell width", self.width, 2**8, 2**40)

    @property
    def size(self) -> int:
        """Coordinates of a cell: points d."""
        return self.points * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """The records of one site, and every span of `rank` of them.

    At most `most` records, or else those that come first by the hash that deals subsamples; `cut` says
    whether there may be more: then one record more may push another one out.

    Shape: centre (d,), key (4,).
    """

    centre: IntArray
    rank: int
    most: int
    cut: bool
    key: IntArray

    def __post_init__(self) -> None:
        _check_dealt(self)
        check_whole("number of records", self.most, 1, MOST_SUBSETS)
        need(
            self.most <= self.rank or math.comb(self.most, self.rank) <= MOST_SUBSETS,
            f"a site looks at no more than {MOST_SUBSETS} spans",
        )

    @property
    def size(self) -> int:
        """Integers of a reduced row echelon form: rank d."""
        return self.rank * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preimage:
    """What a released fingerprint stands for: a reduced row echelon form, or the coordinates of a cell.

    `holders` are the places, among the study's sites, of those whose votes were counted: if one of them does
    not answer nothing is released, or else whether it alone could answer would tell something about its
    records. Of `subsamples`, `cells` and `pool` exactly one says what was asked before.

    Shape: fingerprint (4,), holders (m,); answer and release (1 + size,): 1 and the values, or zeros.
    """

    kind: ClassVar[Kind] = "preimage"
    meaning: ClassVar[str] = "the subspace that the released fingerprint stands for"
    bound: ClassVar[int] = 1  # nothing is added up
    fingerprint: IntArray
    holders: IntArray
    subsamples: Subsamples | None = None
    cells: Cells | None = None
    pool: Pool | None = None

    check_honest = check_public
    describe = numbered

    def __post_init__(self) -> None:
        freeze(self, "fingerprint", "holders")
        need(self.fingerprint.shape == (WORDS,), "a fingerprint has four words")
        rising = self.holders.ndim == 1 and bool((np.diff(self.holders, prepend=-1) > 0).all())
        need(rising and bool((self.holders < MAX_SITES).all()), "holders are places of sites, rising")
        given = [source for source in (self.subsamples, self.cells, self.pool) if source is not None]
        need(len(given) == 1, "a fingerprint stands for one thing")

    @property
    def source(self) -> Subsamples | Cells | Pool:
        given = self.subsamples or self.cells or self.pool
        assert given is not None
        return given

    @property
    def centre(self) -> IntArray:
        return self.source.centre

    @property
    def length(self) -> int:
        return 1 + self.source.size

    @property
    def released(self) -> int:
        return self.length

    def possible(self, values: IntArray, records: range) -> bool:
        """Zeros, or exactly what the fingerprint stands for."""
        if not values[0]:
            return not values.any()
        return int(values[0]) == 1 and bool((fingerprint(values[1:]) == self.fingerprint).all())

    def imagined(self, records: int) -> IntArray:
        return np.zeros(self.released, dtype=np.int64)


# The geometry of cells: public points, where the grid begins, and what a cell says of a subspace. All of it
# follows from a question's own fields, so a site and the coordinator agree on it.


def points(cells: Cells) -> FloatArray:
    """Public points, normal in every direction. Shape: (q, d)."""
    return np.asarray(np.rint(quantiles(_uniform(cells, b"points")) / POINT_STEP) * POINT_STEP)


def offsets(cells: Cells) -> FloatArray:
    """Where the grid begins, uniform within a cell. Shape: (q, d)."""
    return _uniform(cells, b"offsets") * width(cells)


def _uniform(cells: Cells, purpose: bytes) -> FloatArray:
    """Public numbers in (0, 1) that look uniform and follow from the key. Shape: (q, d)."""
    label = b"eigenveil/cells/v1\n" + purpose + cells.key.astype("<i8").tobytes()
    data = hashlib.shake_256(label).digest(4 * cells.size)
    numbers: FloatArray = (np.frombuffer(data, dtype="<u4").astype(np.float64) + 0.5) / 2**32
    return numbers.reshape(cells.points, -1)


def width(cells: Cells) -> float:
    return cells.width * 2.0**-CELL_BITS


def cell_of(moved: FloatArray, cells: Cells) -> IntArray:
    """The cell that points fall in. Shape: (q, d) -> (q d,)."""
    return np.floor((moved + offsets(cells)) / width(cells)).astype(np.int64).reshape(-1)


def middle_of(cell: IntArray, cells: Cells) -> FloatArray:
    """The points in the middle of a cell. Shape: (q d,) -> (q, d)."""
    return np.asarray((cell.reshape(cells.points, -1) + 0.5) * width(cells) - offsets(cells))


def leading(moved: FloatArray, k: int) -> FloatArray:
    """The k directions in which points spread most. Shape: (q, d) -> (k, d), orthonormal."""
    with one_thread():
        _, _, vectors = np.linalg.svd(moved, full_matrices=False)
    return fix_signs(vectors[:k].T).T


def width_for(error: float, d: int, k: int, q: int) -> int:
    """The width, in 2^-32, at which rounding to a cell turns the subspace by a sine of about `error`.

    The least singular value of the q-by-k part of the moved points that carries the subspace is about
    sqrt(q) - sqrt(k - 1), as the points are normal.
    """
    side = error * math.sqrt(12) * (math.sqrt(q) - math.sqrt(k - 1)) / _across(d, k)
    units = math.floor(side * 2.0**CELL_BITS)
    return min(max(units, 2**8), 2**40)


def error_of(moved: FloatArray, cells: Cells) -> float:
    """The sine that rounding to a cell turned the subspace by, about, as its middle shows. Shape: (q, d).

    A coordinate is off by a uniform within a cell, of variance width^2 / 12.
    """
    with one_thread():
        carried = float(np.linalg.svd(moved, compute_uv=False)[cells.rank - 1])
    off = width(cells) / math.sqrt(12) * _across(cells.centre.size, cells.rank)
    return off / max(carried, off)


def _across(d: int, k: int) -> float:
    """Largest singular value of k-by-(d - k) independent numbers of variance 1, about."""
    return max(1.0, math.sqrt(d - k) + math.sqrt(k) - 1)


def ratio_for(cells: Cells, records: float) -> float:
    """The largest lambda_{k+1} / lambda_k at which most subsamples of `records` records agree, about.

    A coordinate of a moved point differs between subsamples by sqrt(2 k ratio / records); q d coordinates
    must all fall in one cell, each fails with about that over the width.
    """
    spread = width(cells) / (4 * cells.size)
    return spread**2 * max(records, 1.0) / (2 * cells.rank)

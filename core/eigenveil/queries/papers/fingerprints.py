"""Fingerprints of subspaces: the subsamples that vote with one, and the subspace of a released one."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, digest
from eigenveil.numerics.linalg import fix_signs, normal_quantiles, single_blas_thread
from eigenveil.queries.contract import QueryKind, check_public, describe_numbers, mark
from eigenveil.queries.limits import check_centre, check_whole, freeze, require
from eigenveil.study.study import MAX_SITES

PRIME = 2**61 - 1  # spans are computed modulo this Mersenne prime
FINGERPRINT_WORDS = 4  # 64-bit words of a SHA-256 fingerprint; all zeros mean "no vote"
MOST_RANK = 256  # keeps products of a row with half a reduced row exact in float64
MOST_SUBSAMPLES = 2**16
MOST_POINTS = 2 * MOST_RANK + 2
POINT_STEP = 2.0**-20  # points lie on a grid, so that all mathematical libraries give the same ones
CELL_BITS = 32  # the width of a cell is a multiple of 2^-32
MOST_SUBSETS = 2**15  # spans that subspace-reference may examine


def fingerprint(values: IntArray) -> IntArray:
    """Return the SHA-256 of an integer vector as four words. Shape: (m,) -> (4,)."""
    return np.frombuffer(bytes.fromhex(digest("subspace", {}, (values,))), dtype="<i8").astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DealtRecords:
    """Records dealt by a key, and spans of dimension `rank` about a centre. Shape: centre (d,), key (4,)."""

    centre: IntArray
    rank: int
    key: IntArray

    def __post_init__(self) -> None:
        freeze(self, "centre", "key")
        check_centre(self.centre)
        check_whole("dimension", self.rank, 1, min(self.centre.size, MOST_RANK))
        require(self.key.shape == (4,), "the key that deals records into subsamples must have four integers")

    @property
    def size(self) -> int:
        """Return the number of integers of a reduced row echelon form: rank d."""
        return self.rank * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subsamples(DealtRecords):
    """Subsamples: each site deals its records into `count` of them."""

    count: int

    def __post_init__(self) -> None:
        DealtRecords.__post_init__(self)
        check_whole("number of subsamples", self.count, 1, MOST_SUBSAMPLES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells(DealtRecords):
    """Subsamples with a grid of cells for their leading directions. Each site deals its records into `count`
    subsamples. A subsample's projector onto its `rank` leading directions maps `points` public points of R^d
    into a cell of width `width` / 2^32 in each of points * d coordinates. Points and the grid's offset follow
    from the key."""

    count: int
    points: int
    width: int

    def __post_init__(self) -> None:
        DealtRecords.__post_init__(self)
        check_whole("number of subsamples", self.count, 1, MOST_SUBSAMPLES)
        check_whole("number of points", self.points, 1, MOST_POINTS)
        check_whole("cell width", self.width, 2**8, 2**40)

    @property
    def size(self) -> int:
        """Return the number of coordinates of a cell: points d."""
        return self.points * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool(DealtRecords):
    """Records of one site, and every span of `rank` of them. At most `max_records` records: the first by the
    hash that deals subsamples. `truncated` is True if the site may have more; then one more record may
    displace another."""

    max_records: int
    truncated: bool

    def __post_init__(self) -> None:
        DealtRecords.__post_init__(self)
        check_whole("number of records", self.max_records, 1, MOST_SUBSETS)
        require(
            self.max_records <= self.rank or math.comb(self.max_records, self.rank) <= MOST_SUBSETS,
            f"a site may examine at most {MOST_SUBSETS} spans",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preimage:
    """Preimage of a released fingerprint: a reduced row echelon form, or the coordinates of a cell.
    `voting_sites` are the indices, among the study's sites, of those with counted votes. If one of them does
    not answer, nothing is released: otherwise the release could reveal that only that site has the preimage.
    Exactly one of `subsamples`, `cells` and `pool` is set: the source of the earlier query.
    Shape: fingerprint (4,), voting_sites (m,); answer and release (1 + size,): 1 and the values, or zeros."""

    kind: ClassVar[QueryKind] = "preimage"
    label: ClassVar[str] = "the subspace of the released fingerprint"
    lay_meaning: ClassVar[str] = mark("what the published code number stands for")
    meaning: ClassVar[str] = "the subspace of the released fingerprint"
    bound: ClassVar[int] = 1  # nothing is summed
    fingerprint: IntArray
    voting_sites: IntArray
    subsamples: Subsamples | None = None
    cells: Cells | None = None
    pool: Pool | None = None

    check_honest = check_public
    describe = describe_numbers

    def __post_init__(self) -> None:
        freeze(self, "fingerprint", "voting_sites")
        require(self.fingerprint.shape == (FINGERPRINT_WORDS,), "a fingerprint has four words")
        rising = self.voting_sites.ndim == 1 and bool((np.diff(self.voting_sites, prepend=-1) > 0).all())
        require(
            rising and bool((self.voting_sites < MAX_SITES).all()),
            "voting_sites must be indices of sites, rising",
        )
        given = [source for source in (self.subsamples, self.cells, self.pool) if source is not None]
        require(len(given) == 1, "give exactly one of subsamples, cells and pool")

    @property
    def source(self) -> Subsamples | Cells | Pool:
        given = self.subsamples or self.cells or self.pool
        assert given is not None
        return given

    @property
    def length(self) -> int:
        return 1 + self.source.size

    @property
    def released_length(self) -> int:
        return self.length

    def is_plausible(self, values: IntArray, records: range) -> bool:
        """True for zeros, or for values with this fingerprint."""
        if not values[0]:
            return not values.any()
        return int(values[0]) == 1 and bool((fingerprint(values[1:]) == self.fingerprint).all())

    def assumed_release(self, records: int) -> IntArray:
        return np.zeros(self.released_length, dtype=np.int64)


# Geometry of cells: public points, the offset of the grid, and the subspace of a cell. All follow from the
# query's fields, so sites and coordinator agree.


def points(cells: Cells) -> FloatArray:
    """Return public points, normal in every direction. Shape: (q, d)."""
    return np.asarray(np.rint(normal_quantiles(_uniform(cells, b"points")) / POINT_STEP) * POINT_STEP)


def grid_offsets(cells: Cells) -> FloatArray:
    """Return the offset of the grid, uniform within a cell. Shape: (q, d)."""
    return _uniform(cells, b"offsets") * width(cells)


def _uniform(cells: Cells, purpose: bytes) -> FloatArray:
    """Return public pseudo-uniform numbers in (0, 1) from the key. Shape: (q, d)."""
    label = b"eigenveil/cells/v1\n" + purpose + cells.key.astype("<i8").tobytes()
    data = hashlib.shake_256(label).digest(4 * cells.size)
    numbers: FloatArray = (np.frombuffer(data, dtype="<u4").astype(np.float64) + 0.5) / 2**32
    return numbers.reshape(cells.points, -1)


def width(cells: Cells) -> float:
    return cells.width * 2.0**-CELL_BITS


def cell_of(moved: FloatArray, cells: Cells) -> IntArray:
    """Return the cell that contains the points. Shape: (q, d) -> (q d,)."""
    return np.floor((moved + grid_offsets(cells)) / width(cells)).astype(np.int64).reshape(-1)


def cell_centres(cell: IntArray, cells: Cells) -> FloatArray:
    """Return the points in the middle of a cell. Shape: (q d,) -> (q, d)."""
    return np.asarray((cell.reshape(cells.points, -1) + 0.5) * width(cells) - grid_offsets(cells))


def leading_directions(moved: FloatArray, k: int) -> FloatArray:
    """Return the k directions of largest spread of the points. Shape: (q, d) -> (k, d), orthonormal."""
    with single_blas_thread():
        _, _, vectors = np.linalg.svd(moved, full_matrices=False)
    return fix_signs(vectors[:k].T).T


def width_for_error(error: float, d: int, k: int, q: int) -> int:
    """Return the width, in 2^-32, at which rounding to a cell turns the subspace by a sine of about `error`.
    The least singular value of the q-by-k part of the moved points that carries the subspace is about sqrt(q)
    - sqrt(k - 1), as the points are normal."""
    side = error * math.sqrt(12) * (math.sqrt(q) - math.sqrt(k - 1)) / _across(d, k)
    return min(max(math.floor(side * 2.0**CELL_BITS), 2**8), 2**40)


def rounding_sine(moved: FloatArray, cells: Cells) -> float:
    """Return the approximate sine by which rounding to a cell turned the subspace. Shape: (q, d). The error
    of a coordinate is uniform within a cell, with variance width^2 / 12."""
    with single_blas_thread():
        carried = float(np.linalg.svd(moved, compute_uv=False)[cells.rank - 1])
    off = width(cells) / math.sqrt(12) * _across(cells.centre.size, cells.rank)
    return off / max(carried, off)


def _across(d: int, k: int) -> float:
    """Return the approximate largest singular value of k-by-(d - k) independent numbers of variance 1."""
    return max(1.0, math.sqrt(d - k) + math.sqrt(k) - 1)


def eigenvalue_ratio_limit(cells: Cells, records: float) -> float:
    """Return the approximate largest lambda_{k+1} / lambda_k at which subsamples of `records` records agree.
    A coordinate of a projected point differs between subsamples by sqrt(2 k ratio / records). All q d
    coordinates must fall in one cell; each fails with about that difference over the width."""
    return (width(cells) / (4 * cells.size)) ** 2 * max(records, 1.0) / (2 * cells.rank)

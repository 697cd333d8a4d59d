"""Questions about the subspace that the records lie in: who votes for which, and what was voted for.

Nothing here is a sum over records. A block of records votes with a 32-byte fingerprint of its span (or of the
cell that its leading directions fall in); the sites' votes are put one after the other, counted behind the
barrier (eigenveil.trusted), and at most one fingerprint is released. `Preimage` then fetches what it stands
for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import IntArray, digest
from eigenveil.queries.limits import check_centre, check_whole, freeze, need
from eigenveil.queries.possible import most
from eigenveil.study.study import MAX_SITES

PRIME = 2**61 - 1  # spans are taken over the integers modulo this Mersenne prime
WORDS = 4  # 64-bit words of a SHA-256 fingerprint; all zero says "no vote"
MOST_RANK = 256  # keeps products of a row with half a reduced row exact in float64
MOST_SLOTS = 2**16
MOST_POINTS = 2 * MOST_RANK + 2
CELL_BITS = 32  # the width of a cell is a whole number of 2^-32
TRIALS = 20  # expected trials of each dimension; the right one is never tried in about one run of 20
TRIAL_PRICE = 3  # epsilons of one trial that the best of a random number of trials costs
MOST_SUBSETS = 2**15  # spans that subspace-reference may have to look at


def fingerprint(values: IntArray) -> IntArray:
    """SHA-256 of an integer vector as four words. Shape: (m,) -> (4,)."""
    return np.frombuffer(bytes.fromhex(digest("subspace", {}, (values,))), dtype="<i8").astype(np.int64)


def _check_votes(key: IntArray) -> None:
    need(key.shape == (4,), "blocks are dealt with a key of four integers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subsamples:
    """How each site deals its records into `blocks` blocks, and the dimension that their spans are asked for.

    Shape: centre (d,), key (4,).
    """

    centre: IntArray
    rank: int
    count: int
    key: IntArray

    def __post_init__(self) -> None:
        freeze(self, "centre", "key")
        check_centre(self.centre)
        check_whole("dimension", self.rank, 1, min(self.centre.size, MOST_RANK))
        check_whole("number of subsamples", self.count, 1, MOST_SLOTS)
        _check_votes(self.key)

    @property
    def size(self) -> int:
        """Integers of a reduced row echelon form: rank d."""
        return self.rank * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """How each site deals its records into `blocks` subsamples, and the grid that their directions fall on.

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
        freeze(self, "centre", "key")
        check_centre(self.centre)
        check_whole("dimension", self.rank, 1, min(self.centre.size, MOST_RANK))
        check_whole("number of subsamples", self.count, 1, MOST_SLOTS)
        check_whole("number of points", self.points, 1, MOST_POINTS)
        check_whole("cell width", self.width, 2**8, 2**40)
        _check_votes(self.key)

    @property
    def size(self) -> int:
        """Coordinates of a cell: points d."""
        return self.points * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """The records of one site, and every span of `rank` of them.

    At most `most` records, or else those that come first by the hash that deals blocks; `cut` says whether
    there may be more: then one record more may push another one out.

    Shape: centre (d,), key (4,).
    """

    centre: IntArray
    rank: int
    most: int
    cut: bool
    key: IntArray

    def __post_init__(self) -> None:
        freeze(self, "centre", "key")
        check_centre(self.centre)
        check_whole("dimension", self.rank, 1, min(self.centre.size, MOST_RANK))
        check_whole("number of records", self.most, 1, MOST_SUBSETS)
        need(
            self.most <= self.rank or math.comb(self.most, self.rank) <= MOST_SUBSETS,
            f"a site looks at no more than {MOST_SUBSETS} spans",
        )
        _check_votes(self.key)

    @property
    def size(self) -> int:
        """Integers of a reduced row echelon form: rank d."""
        return self.rank * self.centre.size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockRanks:
    """For i = 0, 1, ..., rank: how many blocks have a span of dimension at most i.

    Shape: answer (rank + 1,).
    """

    subsamples: Subsamples

    @property
    def centre(self) -> IntArray:
        """Where subspaces go through. Shape: (d,)."""
        return self.subsamples.centre

    @property
    def length(self) -> int:
        """rank + 1."""
        return self.subsamples.rank + 1

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: a record raises the dimension of one block by at most 1, which takes 1 from one
        count; a replaced one does that backwards in one block and forwards in another."""
        return 1 if neighbours is Neighbours.ADD_REMOVE else 2

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: 1^2, or 1^2 + 1^2 (in one count the two changes cancel out)."""
        return self.l1(neighbours)

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        rising = bool((values[:-1] <= values[1:]).all())  # np.diff would wrap around
        return rising and int(values[0]) >= 0 and int(values[-1]) <= self.subsamples.count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanVotes:
    """Each block votes for its span, if that has dimension `rank`.

    Shape: answer (4 blocks,); release (4,).
    """

    subsamples: Subsamples

    @property
    def centre(self) -> IntArray:
        """Where subspaces go through. Shape: (d,)."""
        return self.subsamples.centre

    @property
    def length(self) -> int:
        """A slot of four words for every block."""
        return WORDS * self.subsamples.count

    @property
    def released(self) -> int:
        """One fingerprint, or zeros."""
        return WORDS

    @property
    def least(self) -> int:
        """Votes that are needed beside what privacy needs."""
        return 1

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1 of the counts of votes: a record more leaves its block's vote, makes it appear or
        makes it vanish, but never changes it: a span of the same dimension that holds the old one is the
        old one [P15]. A replaced record does two of these."""
        return 1 if neighbours is Neighbours.ADD_REMOVE else 2

    def bound(self) -> int:
        """Largest magnitude one record adds to a count."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this: fingerprints may be anything."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellVotes:
    """Each subsample votes for its cell. Shape: answer (4 blocks,); release (4,).

    `least`: votes that the winner needs, noise included, beside what privacy needs.
    """

    cells: Cells
    least: int

    def __post_init__(self) -> None:
        check_whole("least number of votes", self.least, 1, MOST_SLOTS * MAX_SITES)

    @property
    def centre(self) -> IntArray:
        """Where subspaces go through. Shape: (d,)."""
        return self.cells.centre

    @property
    def length(self) -> int:
        """A slot of four words for every subsample."""
        return WORDS * self.cells.count

    @property
    def released(self) -> int:
        """One fingerprint, or zeros."""
        return WORDS

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1 of the counts of votes: one vote leaves a cell and another appears; or two do."""
        return 2 if neighbours is Neighbours.ADD_REMOVE else 4

    def bound(self) -> int:
        """Largest magnitude one record adds to a count."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this: fingerprints may be anything."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankVotes:
    """`CellVotes` for every dimension from 1 to `rank` at once, of which one dimension and cell are released.

    The first half of the subsamples proposes a cell, the second half says whether it agrees.

    Shape: answer (rank, blocks, 4) flat; release (5,): the dimension and the fingerprint, or zeros.
    """

    cells: Cells

    def __post_init__(self) -> None:
        need(self.cells.count % 2 == 0, "half of the subsamples propose and half agree: an even number")

    @property
    def centre(self) -> IntArray:
        """Where subspaces go through. Shape: (d,)."""
        return self.cells.centre

    @property
    def length(self) -> int:
        """A slot of four words for every subsample and dimension."""
        return WORDS * self.cells.count * self.cells.rank

    @property
    def released(self) -> int:
        """A dimension and a fingerprint."""
        return 1 + WORDS

    def bound(self) -> int:
        """Largest magnitude one record adds to a count."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this: fingerprints may be anything."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanGap:
    """The best and the second best score of a span of `rank` records, and the fingerprint of the best.

    Shape: answer (6,), from one site; release (4,): the fingerprint if the gap is wide, or zeros.
    """

    pool: Pool

    @property
    def centre(self) -> IntArray:
        """Where subspaces go through. Shape: (d,)."""
        return self.pool.centre

    @property
    def length(self) -> int:
        """Two scores and a fingerprint."""
        return 2 + WORDS

    def swing(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record more raises every score by 0 or 1, so a lead moves by 1; where it takes
        another's place, scores move by up to 1 either way, and a lead by 2 [P16]."""
        return 1 if neighbours is Neighbours.ADD_REMOVE and not self.pool.cut else 2

    @property
    def released(self) -> int:
        """One fingerprint, or zeros."""
        return WORDS

    def bound(self) -> int:
        """Largest magnitude one record adds to a score."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        return 0 <= int(values[1]) <= int(values[0]) <= min(most(records), self.pool.most)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preimage:
    """What a released fingerprint stands for: a reduced row echelon form, or the coordinates of a cell.

    `holders` are the places, among the study's sites, of those whose votes were counted: if one of them does
    not answer nothing is released, or else whether it alone could answer would tell something about its
    records. Of `blocks`, `cells` and `pool` exactly one says what was asked before.

    Shape: fingerprint (4,), holders (m,); answer and release (1 + size,): 1 and the values, or zeros.
    """

    fingerprint: IntArray
    holders: IntArray
    subsamples: Subsamples | None = None
    cells: Cells | None = None
    pool: Pool | None = None

    def __post_init__(self) -> None:
        freeze(self, "fingerprint", "holders")
        need(self.fingerprint.shape == (WORDS,), "a fingerprint has four words")
        rising = self.holders.ndim == 1 and bool((np.diff(self.holders, prepend=-1) > 0).all())
        need(rising and bool((self.holders < MAX_SITES).all()), "holders are places of sites, rising")
        given = [source for source in (self.subsamples, self.cells, self.pool) if source is not None]
        need(len(given) == 1, "a fingerprint stands for one thing")

    @property
    def source(self) -> Subsamples | Cells | Pool:
        """What was asked before."""
        given = self.subsamples or self.cells or self.pool
        assert given is not None
        return given

    @property
    def centre(self) -> IntArray:
        """Where subspaces go through. Shape: (d,)."""
        return self.source.centre

    @property
    def length(self) -> int:
        """1 and the values."""
        return 1 + self.source.size

    @property
    def released(self) -> int:
        """1 and the values."""
        return self.length

    def bound(self) -> int:
        """Nothing is added up."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this: zeros, or exactly what the fingerprint stands for."""
        if not values[0]:
            return not values.any()
        return int(values[0]) == 1 and bool((fingerprint(values[1:]) == self.fingerprint).all())

"""Queries about the subspace that the records lie in: who votes for which, and what was voted for.

Nothing here is a sum over records. A subsample votes with the fingerprint of its span (or of the cell that
its leading directions fall in); the sites' votes are put one after the other, counted behind the barrier
(eigenveil.mechanisms), and at most one fingerprint is released. `BlockRanks` alone is added up: it counts
subsamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.contract import Kind
from eigenveil.queries.describe import numbered
from eigenveil.queries.fingerprints import MOST_SUBSAMPLES, WORDS, Cells, Pool, Subsamples, check_public
from eigenveil.queries.limits import check_whole, need
from eigenveil.queries.possible import most
from eigenveil.study.study import MAX_SITES

TRIALS = 20  # expected trials of each dimension; the right one is never tried in about one run of 20
TRIAL_PRICE = 3  # epsilons of one trial that the best of a random number of trials costs


def anything(query: object, values: IntArray, records: range) -> bool:
    """Fingerprints may be anything."""
    return True


def one_fingerprint(query: object, records: int) -> IntArray:
    """An imagined winner. Shape: (4,)."""
    return np.ones(WORDS, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockRanks:
    """For i = 0, 1, ..., rank: how many subsamples have a span of dimension at most i.

    Shape: answer (rank + 1,).
    """

    kind: ClassVar[Kind] = "block_ranks"
    meaning: ClassVar[str] = "how many small groups of records span a subspace of which dimension (counts)"
    bound: ClassVar[int] = 1
    subsamples: Subsamples

    check_honest = check_public
    describe = numbered

    @property
    def centre(self) -> IntArray:
        return self.subsamples.centre

    @property
    def length(self) -> int:
        return self.subsamples.rank + 1

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: a record raises the dimension of one subsample by at most 1, which takes 1 from
        one count; a replaced one does that backwards in one subsample and forwards in another."""
        return neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: 1^2, or 1^2 + 1^2 (in one count the two changes cancel out)."""
        return self.l1(neighbours)

    def possible(self, values: IntArray, records: range) -> bool:
        rising = bool((values[:-1] <= values[1:]).all())  # np.diff would wrap around
        return rising and int(values[0]) >= 0 and int(values[-1]) <= self.subsamples.count

    def imagined(self, records: int) -> IntArray:
        return frozen(self.subsamples.count * (np.arange(self.length) == self.length - 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanVotes:
    """Each subsample votes for its span, if that has dimension `rank`.

    Shape: answer (4 subsamples,); release (4,).
    """

    kind: ClassVar[Kind] = "span_votes"
    meaning: ClassVar[str] = (
        "a fingerprint of what each small group of records spans, of which at most one is released"
    )
    bound: ClassVar[int] = 1
    released: ClassVar[int] = WORDS
    least: ClassVar[int] = 1  # votes that are needed beside what privacy needs
    subsamples: Subsamples

    possible = anything
    imagined = one_fingerprint
    check_honest = check_public
    describe = numbered

    @property
    def centre(self) -> IntArray:
        return self.subsamples.centre

    @property
    def length(self) -> int:
        return WORDS * self.subsamples.count

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1 of the counts of votes: a record more leaves its subsample's vote, makes it
        appear or makes it vanish, but never changes it: a span of the same dimension that holds the old one
        is the old one [P15]. A replaced record does two of these."""
        return neighbours.records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellVotes:
    """Each subsample votes for its cell. Shape: answer (4 subsamples,); release (4,).

    `least`: votes that the winner needs, noise included, beside what privacy needs.
    """

    kind: ClassVar[Kind] = "cell_votes"
    meaning: ClassVar[str] = (
        "a fingerprint of each small group's leading directions, rounded; at most one is released"
    )
    bound: ClassVar[int] = 1
    released: ClassVar[int] = WORDS
    cells: Cells
    least: int

    possible = anything
    imagined = one_fingerprint
    check_honest = check_public
    describe = numbered

    def __post_init__(self) -> None:
        check_whole("least number of votes", self.least, 1, MOST_SUBSAMPLES * MAX_SITES)

    @property
    def centre(self) -> IntArray:
        return self.cells.centre

    @property
    def length(self) -> int:
        return WORDS * self.cells.count

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1 of the counts of votes: one vote leaves a cell and another appears; or two do."""
        return 2 * neighbours.records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankVotes:
    """`CellVotes` for every dimension from 1 to `rank` at once, of which one dimension and cell are released.

    The first half of the subsamples proposes a cell, the second half says whether it agrees.

    Shape: answer (rank, subsamples, 4) flat; release (5,): the dimension and the fingerprint, or zeros.
    """

    kind: ClassVar[Kind] = "rank_votes"
    meaning: ClassVar[str] = "such fingerprints for several dimensions, of which at most one is released"
    bound: ClassVar[int] = 1
    released: ClassVar[int] = 1 + WORDS
    cells: Cells

    possible = anything
    check_honest = check_public
    describe = numbered

    def __post_init__(self) -> None:
        need(self.cells.count % 2 == 0, "half of the subsamples propose and half agree: an even number")

    @property
    def centre(self) -> IntArray:
        return self.cells.centre

    @property
    def length(self) -> int:
        return WORDS * self.cells.count * self.cells.rank

    def imagined(self, records: int) -> IntArray:
        return frozen([self.cells.rank, *np.ones(WORDS, dtype=np.int64)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanGap:
    """The best and the second best score of a span of `rank` records, and the fingerprint of the best.

    Shape: answer (6,), from one site; release (4,): the fingerprint if the gap is wide, or zeros.
    """

    kind: ClassVar[Kind] = "span_gap"
    meaning: ClassVar[str] = (
        "the lead of the most common subspace, and its fingerprint, released if it leads far"
    )
    bound: ClassVar[int] = 1
    length: ClassVar[int] = 2 + WORDS
    released: ClassVar[int] = WORDS
    pool: Pool

    imagined = one_fingerprint
    check_honest = check_public
    describe = numbered

    @property
    def centre(self) -> IntArray:
        return self.pool.centre

    def swing(self, neighbours: Neighbours) -> int:
        """Sensitivity: a record more raises every score by 0 or 1, so a lead moves by 1; where it takes
        another's place, scores move by up to 1 either way, and a lead by 2 [P16]."""
        return 2 if self.pool.cut else neighbours.records

    def possible(self, values: IntArray, records: range) -> bool:
        return 0 <= int(values[1]) <= int(values[0]) <= min(most(records), self.pool.most)

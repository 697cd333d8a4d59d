"""Queries about the subspace of the records, by votes of subsamples [SUB]. A subsample votes with the
fingerprint of its span, or of the cell of its leading directions. The sites' votes are concatenated and
counted behind the barrier (eigenveil.mechanisms), and at most one fingerprint is released. Only `BlockRanks`
is a sum: it counts subsamples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.contract import QueryKind, check_public, describe_numbers, mark
from eigenveil.queries.limits import check_whole, require
from eigenveil.queries.papers.fingerprints import (
    FINGERPRINT_WORDS,
    MOST_SUBSAMPLES,
    Cells,
    Pool,
    Subsamples,
)
from eigenveil.study.study import MAX_SITES

TRIALS = 20  # expected trials of each dimension; about one run in 20 never tries the right one
TRIAL_COST = 3  # cost of the best of a random number of trials, in epsilons of one trial


class FingerprintVotes:
    """Fingerprints from every site; at most one is released. Shape: release (4,), zeros if none is."""

    __slots__ = ()
    bound: ClassVar[int] = 1
    released_length: ClassVar[int] = FINGERPRINT_WORDS
    check_honest = check_public
    describe = describe_numbers

    def is_plausible(self, values: IntArray, records: range) -> bool:
        """Accept: a fingerprint may be any number."""
        return True

    def assumed_release(self, records: int) -> IntArray:
        return np.ones(self.released_length, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockRanks:
    """For i = 0, 1, ..., rank: the number of subsamples with a span of dimension at most i.
    Shape: answer (rank + 1,)."""

    kind: ClassVar[QueryKind] = "block_ranks"
    label: ClassVar[str] = "dimensions of small groups, counted"
    lay_meaning: ClassVar[str] = mark(
        "how many small groups of patients need how many directions: counts only"
    )
    meaning: ClassVar[str] = "the number of small groups of records with a span of each dimension"
    bound: ClassVar[int] = 1
    subsamples: Subsamples

    check_honest = check_public
    describe = describe_numbers

    @property
    def length(self) -> int:
        return self.subsamples.rank + 1

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1: a record raises the dimension of one subsample by at most 1, which takes 1 from
        one count. A replacement does the opposite in one subsample and the same in another."""
        return neighbours.records

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Sensitivity: 1^2, or 1^2 + 1^2 (in one count the two changes cancel out)."""
        return self.l1(neighbours)

    def is_plausible(self, values: IntArray, records: range) -> bool:
        rising = bool((values[:-1] <= values[1:]).all())  # no np.diff: it would wrap around
        return rising and int(values[0]) >= 0 and int(values[-1]) <= self.subsamples.count

    def assumed_release(self, records: int) -> IntArray:
        return frozen(self.subsamples.count * (np.arange(self.length) == self.length - 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanVotes(FingerprintVotes):
    """Votes of the subsamples for their spans, if of dimension `rank`. Shape: answer (4 subsamples,)."""

    kind: ClassVar[QueryKind] = "span_votes"
    label: ClassVar[str] = "what small groups share: one fingerprint at most is released"
    lay_meaning: ClassVar[str] = mark(
        "what small groups of patients have in common, as a code number; one at most is published"
    )
    meaning: ClassVar[str] = (
        "a fingerprint of the span of each small group of records; at most one is released"
    )
    min_votes: ClassVar[int] = 1  # least votes of the winner, besides the threshold of privacy
    subsamples: Subsamples

    @property
    def length(self) -> int:
        return FINGERPRINT_WORDS * self.subsamples.count

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1 of the vote counts: one more record keeps, adds or removes its subsample's
        vote. It never changes it: a span of the same dimension that contains the old one equals it [P15]. A
        replacement does two of these."""
        return neighbours.records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellVotes(FingerprintVotes):
    """Votes of the subsamples for their cells. Shape: answer (4 subsamples,). `min_votes`: the least noised
    votes of the winner, besides the threshold of privacy."""

    kind: ClassVar[QueryKind] = "cell_votes"
    label: ClassVar[str] = "directions of small groups: one fingerprint at most is released"
    lay_meaning: ClassVar[str] = mark(
        "in which rough direction small groups of patients lie, as a code number; one at most is published"
    )
    meaning: ClassVar[str] = (
        "a fingerprint of the rounded leading directions of each small group; at most one is released"
    )
    cells: Cells
    min_votes: int

    def __post_init__(self) -> None:
        check_whole("least number of votes", self.min_votes, 1, MOST_SUBSAMPLES * MAX_SITES)

    @property
    def length(self) -> int:
        return FINGERPRINT_WORDS * self.cells.count

    def l1(self, neighbours: Neighbours) -> int:
        """Sensitivity in L1 of the vote counts: one vote moves from a cell to another; or two do."""
        return 2 * neighbours.records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankVotes(FingerprintVotes):
    """`CellVotes` for every dimension from 1 to `rank`; one dimension and its cell are released. The first
    half of the subsamples proposes a cell; the second half confirms it or does not.
    Shape: answer (rank, subsamples, 4) flat; release (5,): the dimension and the fingerprint, or zeros."""

    kind: ClassVar[QueryKind] = "rank_votes"
    label: ClassVar[str] = "dimensions of small groups: one fingerprint at most is released"
    lay_meaning: ClassVar[str] = mark(
        "what small groups of patients have in common, as a code number, for several numbers "
        "of directions; one at most is published"
    )
    meaning: ClassVar[str] = "such fingerprints for several dimensions; at most one is released"
    released_length: ClassVar[int] = 1 + FINGERPRINT_WORDS
    cells: Cells

    def __post_init__(self) -> None:
        require(
            self.cells.count % 2 == 0, "an even number of subsamples is needed: half propose, half confirm"
        )

    @property
    def length(self) -> int:
        return FINGERPRINT_WORDS * self.cells.count * self.cells.rank

    def assumed_release(self, records: int) -> IntArray:
        return frozen([self.cells.rank, *[1] * FINGERPRINT_WORDS])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanGap(FingerprintVotes):
    """Best and second best score of a span of `rank` records, and the fingerprint of the best.
    Shape: answer (6,), from one site; released if the gap is wide."""

    kind: ClassVar[QueryKind] = "span_gap"
    label: ClassVar[str] = "lead of the most common fingerprint: only that fingerprint is released, if at all"
    lay_meaning: ClassVar[str] = mark(
        "how much oftener the most common of these numbers was seen than the next; published only if by far"
    )
    meaning: ClassVar[str] = (
        "the lead of the most common subspace, and its fingerprint, which is released if the lead is large"
    )
    length: ClassVar[int] = 2 + FINGERPRINT_WORDS
    pool: Pool

    def gap_sensitivity(self, neighbours: Neighbours) -> int:
        """Sensitivity of the gap between the best two scores: one more record raises each score by 0 or 1, so
        the gap changes by 1. If it displaces another record, scores change by 1 either way: 2 [P16]."""
        return 2 if self.pool.truncated else neighbours.records

    def is_plausible(self, values: IntArray, records: range) -> bool:
        return 0 <= int(values[1]) <= int(values[0]) <= min(records[-1], self.pool.max_records)

"""The closed set of queries to a site. The answer to a query is one vector of 64-bit integers. Each query
class states the vector's length, its sensitivity and its meaning (`contract.QueryProtocol`). An
`AdditiveQuery` is released as its sum over records plus noise. A `TrustedQuery` is released by a mechanism
behind the barrier (eigenveil.mechanisms), from an exact sum that only the coordinator sees. Imports the grid
and the study, and no records."""

from __future__ import annotations

from typing import Any, get_args

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.columns import ColumnHistograms, ColumnMoments, Frame
from eigenveil.queries.cross_covariance import CrossCovariance, CrossNorms, CrossSpec
from eigenveil.queries.gradients import Batch, Gradient, GradientNorms, GradientSpec, ShuffledRecord
from eigenveil.queries.papers.fingerprints import Preimage
from eigenveil.queries.papers.single_pass import CoordinateClippedSum, CoordinateHistograms, EigenvalueVotes
from eigenveil.queries.papers.subspaces import BlockRanks, CellVotes, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.papers.trusted import VECTOR, Eigenvectors, RadiusSearch, Spectrum, Subspace
from eigenveil.queries.rows import ClippedSum, Count, Gram, RowNorms, SquaredNormSum

GradientSumQuery = Gradient | GradientNorms | EigenvalueVotes | CoordinateHistograms | CoordinateClippedSum
RowQuery = RowNorms | ClippedSum | SquaredNormSum | Gram | CrossNorms | CrossCovariance
ColumnQuery = ColumnHistograms | ColumnMoments
AdditiveQuery = Count | RowQuery | ColumnQuery | GradientSumQuery | BlockRanks
PerSiteQuery = SpanVotes | CellVotes | RankVotes | SpanGap | Preimage  # concatenated by site, not summed
SumMechanismQuery = Spectrum | Eigenvectors | Subspace | RadiusSearch | ShuffledRecord
TrustedQuery = SumMechanismQuery | PerSiteQuery
Query = AdditiveQuery | TrustedQuery

GradientQuery = GradientSumQuery | ShuffledRecord  # with an optional batch
SubspaceQuery = BlockRanks | PerSiteQuery
# Their mechanism chooses its own noise, whatever the noise distribution: they have an epsilon and no scale.
MechanismNoiseQuery = Eigenvectors | Subspace | RadiusSearch | ShuffledRecord | PerSiteQuery

KINDS: dict[str, type[Any]] = {query.kind.replace("_", "-"): query for query in get_args(Query)}
NAMES = {query: name for name, query in KINDS.items()}


def released_length(query: Query) -> int:
    """Return the number of integers in the release of `query`."""
    return query.length if isinstance(query, AdditiveQuery) else query.released_length


def total_length(query: Query, sites: int) -> int:
    """Return the number of integers in the answers of `sites` sites together."""
    return query.length * sites if isinstance(query, PerSiteQuery) else query.length


def centre_of(query: Query) -> IntArray | None:
    """Return the public centre of `query`; None for queries without one. Shape: (d,)."""
    if isinstance(query, GradientQuery | CrossNorms | CrossCovariance):
        return query.spec.centre
    if isinstance(query, Count | ColumnQuery):
        return None
    match query:
        case BlockRanks() | SpanVotes():
            return query.subsamples.centre
        case CellVotes() | RankVotes():
            return query.cells.centre
        case SpanGap():
            return query.pool.centre
        case Preimage():
            return query.source.centre
        case _:
            return query.centre


def columns_of(query: Query) -> int | None:
    """Return the number of columns of `query`; None if it involves no columns."""
    if isinstance(query, ColumnQuery):
        return query.columns
    centre = centre_of(query)
    return None if centre is None else centre.size


def batch_of(query: Query) -> Batch | None:
    """Return the batch of records of `query`; None if it covers all records."""
    return query.batch if isinstance(query, GradientQuery) else None


def needs_all_rows(query: Query) -> bool:
    """Return True if a site must read all its records at once. Such an answer is not a sum over parts: it
    deals or pairs records, or takes one out of an order."""
    if isinstance(query, SubspaceQuery | EigenvalueVotes | ShuffledRecord):
        return True
    return batch_of(query) is not None


__all__ = [
    "KINDS", "NAMES", "VECTOR", "AdditiveQuery", "Batch", "BlockRanks", "CellVotes", "ClippedSum",
    "ColumnHistograms", "ColumnMoments", "ColumnQuery", "CoordinateClippedSum", "CoordinateHistograms",
    "Count", "CrossCovariance", "CrossNorms", "CrossSpec", "EigenvalueVotes", "Eigenvectors", "Frame",
    "Gradient", "GradientNorms", "GradientQuery", "GradientSpec", "Gram", "MechanismNoiseQuery",
    "PerSiteQuery", "Preimage", "Query", "RadiusSearch", "RankVotes", "RowNorms", "ShuffledRecord",
    "SpanGap", "SpanVotes", "Spectrum", "SquaredNormSum", "Subspace", "SubspaceQuery",
    "SumMechanismQuery", "TrustedQuery", "batch_of", "centre_of", "columns_of", "needs_all_rows",
    "released_length", "total_length",
]  # fmt: skip

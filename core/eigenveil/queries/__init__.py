"""The closed vocabulary of what a site can be asked, and what each query may reveal.

A query is answered by one vector of 64-bit integers, and says itself what `contract.Contract` lists: how long
the vector is, how far one person moves it, what it means. `Additive` queries are released as their sum over
records plus noise; `Trusted` ones by a mechanism of their own behind the barrier (eigenveil.mechanisms), from
an exact sum that only the coordinator sees. Imports the grid and the study, and nothing that holds a record.
"""

from __future__ import annotations

from typing import Any, get_args

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.batch import Batch
from eigenveil.queries.columns import ColumnHistograms, ColumnMoments, Frame
from eigenveil.queries.cross_covariance import CrossCovariance, CrossNorms, CrossSpec
from eigenveil.queries.fingerprints import Preimage
from eigenveil.queries.gradients import Gradient, GradientNorms, GradientSpec, ShuffledRecord
from eigenveil.queries.rows import ClippedSum, Count, Gram, RowNorms, SquaredNormSum
from eigenveil.queries.single_pass import CoordinateClippedSum, Coordinates, Votes
from eigenveil.queries.subspaces import BlockRanks, CellVotes, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.trusted import VECTOR, Eigenvectors, RadiusSearch, Spectrum, Subspace

Summed = Gradient | GradientNorms | Votes | Coordinates | CoordinateClippedSum
OfRows = RowNorms | ClippedSum | SquaredNormSum | Gram | CrossNorms | CrossCovariance
OfColumns = ColumnHistograms | ColumnMoments
Additive = Count | OfRows | OfColumns | Summed | BlockRanks
PerSite = SpanVotes | CellVotes | RankVotes | SpanGap | Preimage  # put side by side, not added up
OfSum = Spectrum | Eigenvectors | Subspace | RadiusSearch | ShuffledRecord
Trusted = OfSum | PerSite
Query = Additive | Trusted

OnGradients = Summed | ShuffledRecord  # maybe of a batch
OnSubspaces = BlockRanks | PerSite
# Their mechanism decides on its noise, whatever the law: it has an epsilon, and no scale that counts reach.
OwnNoise = Eigenvectors | Subspace | RadiusSearch | ShuffledRecord | PerSite
Grams = Gram | Spectrum | Eigenvectors | Subspace  # from one and the same sum of products

KINDS: dict[str, type[Any]] = {query.kind.replace("_", "-"): query for query in get_args(Query)}
NAMES = {query: name for name, query in KINDS.items()}


def released(query: Query) -> int:
    """How many integers the release of `query` holds."""
    return query.length if isinstance(query, Additive) else query.released


def total_length(query: Query, sites: int) -> int:
    """How many integers the answers of `sites` sites make together."""
    return query.length * sites if isinstance(query, PerSite) else query.length


def centre_of(query: Query) -> IntArray | None:
    """The public point that records are seen from; None where they are only counted. Shape: (d,)."""
    return query.spec.centre if isinstance(query, OnGradients) else query.centre


def columns_of(query: Query) -> int | None:
    """How many columns `query` is about; None if about none."""
    if isinstance(query, OfColumns):
        return query.columns
    centre = centre_of(query)
    return None if centre is None else centre.size


def batch_of(query: Query) -> Batch | None:
    """The batch of the records that `query` is about; None if it is about all of them."""
    return query.batch if isinstance(query, OnGradients) else None


def needs_all_rows(query: Query) -> bool:
    """Whether a site's answer is no sum over parts of its records: it deals them, pairs them or takes one out
    of an order, for which it has to see all of them at once."""
    if isinstance(query, OnSubspaces | Votes | ShuffledRecord):
        return True
    return batch_of(query) is not None


__all__ = [
    "KINDS", "NAMES", "VECTOR", "Additive", "Batch", "BlockRanks", "CellVotes", "ClippedSum",
    "ColumnHistograms", "ColumnMoments", "CoordinateClippedSum", "Coordinates", "Count",
    "CrossCovariance", "CrossNorms", "CrossSpec", "Eigenvectors", "Frame", "Gradient", "GradientNorms",
    "GradientSpec", "Gram", "Grams", "OfColumns", "OnGradients", "OnSubspaces", "OwnNoise", "PerSite",
    "Preimage", "Query", "RadiusSearch", "RankVotes", "RowNorms", "ShuffledRecord", "SpanGap",
    "SpanVotes", "Spectrum", "SquaredNormSum", "Subspace", "Trusted", "Votes", "batch_of", "centre_of",
    "columns_of", "needs_all_rows", "released", "total_length",
]  # fmt: skip

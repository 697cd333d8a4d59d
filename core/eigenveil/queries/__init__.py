"""The closed vocabulary of questions a site can be asked, and what each may reveal.

Every question is answered by one vector of 64-bit integers of a length that the question itself
states. Sensitivity, length and overflow bound are computed here, from the clip the question carries.
`Additive` questions are released as their sum over records plus noise; `Trusted` ones by a mechanism
of their own behind the barrier (eigenveil.trusted), from an exact sum that only the coordinator sees.
"""

from __future__ import annotations

from typing import Any

from eigenveil.queries.batch import Batch
from eigenveil.queries.gradients import Gradient, GradientNorms, GradientSpec
from eigenveil.queries.radii import RadiusSearch
from eigenveil.queries.rows import ClippedSum, Count, Gram, RowNorms, SquaredNormSum
from eigenveil.queries.shuffled import ShuffledRecord
from eigenveil.queries.single_pass import CoordinateClippedSum, Coordinates, Votes
from eigenveil.queries.subspaces import BlockRanks, CellVotes, Preimage, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.trusted import VECTOR, Eigenvectors, Spectrum
from eigenveil.queries.turned import Subspace
from eigenveil.study.grid import S

OnGradients = (
    Gradient | GradientNorms | Votes | Coordinates | CoordinateClippedSum | ShuffledRecord
)  # about gradients, maybe of a part
Additive = (
    Count
    | RowNorms
    | ClippedSum
    | SquaredNormSum
    | Gram
    | Gradient
    | GradientNorms
    | Votes
    | Coordinates
    | CoordinateClippedSum
    | BlockRanks
)
PerSite = (
    SpanVotes | CellVotes | RankVotes | SpanGap | Preimage
)  # put side by side, site by site, not added up
OnSubspaces = BlockRanks | PerSite
Grams = Gram | Spectrum | Eigenvectors | Subspace  # from one and the same sum of products
Trusted = Spectrum | Eigenvectors | Subspace | RadiusSearch | ShuffledRecord | PerSite
Query = Additive | Trusted

KINDS: dict[str, type[Any]] = {
    "count": Count,
    "row-norms": RowNorms,
    "clipped-sum": ClippedSum,
    "energy": SquaredNormSum,
    "gram": Gram,
    "gradient-norms": GradientNorms,
    "gradient": Gradient,
    "votes": Votes,
    "coordinates": Coordinates,
    "boxed": CoordinateClippedSum,
    "slot": ShuffledRecord,
    "spectrum": Spectrum,
    "eigenvectors": Eigenvectors,
    "subspace": Subspace,
    "radius-search": RadiusSearch,
    "block-ranks": BlockRanks,
    "span-votes": SpanVotes,
    "cell-votes": CellVotes,
    "rank-votes": RankVotes,
    "span-gap": SpanGap,
    "preimage": Preimage,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def released(query: Query) -> int:
    """How many integers the release of `ask` holds."""
    return query.length if isinstance(query, Additive) else query.released


def total_length(query: Query, sites: int) -> int:
    """How many integers the answers of `sites` sites make together."""
    return query.length * sites if isinstance(query, PerSite) else query.length


def batch_of(query: Query) -> Batch | None:
    """The part of the records that `ask` is about; None if it is about all of them."""
    return query.batch if isinstance(query, OnGradients) else None


__all__ = [
    "KINDS",
    "NAMES",
    "VECTOR",
    "Additive",
    "Batch",
    "BlockRanks",
    "CellVotes",
    "ClippedSum",
    "CoordinateClippedSum",
    "Coordinates",
    "Count",
    "Eigenvectors",
    "Gradient",
    "GradientNorms",
    "GradientSpec",
    "Gram",
    "Grams",
    "OnGradients",
    "OnSubspaces",
    "PerSite",
    "Preimage",
    "Query",
    "RadiusSearch",
    "RankVotes",
    "RowNorms",
    "S",
    "ShuffledRecord",
    "SpanGap",
    "SpanVotes",
    "Spectrum",
    "SquaredNormSum",
    "Subspace",
    "Trusted",
    "Votes",
    "batch_of",
    "released",
    "total_length",
]

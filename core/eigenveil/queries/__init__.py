"""The closed vocabulary of questions a site can be asked, and what each may reveal.

Every question is answered by one vector of 64-bit integers of a length that the question itself
states. Sensitivity, length and overflow bound are computed here, from the clip the question carries.
`Additive` questions are released as their sum over records plus noise; `Trusted` ones by a mechanism
of their own behind the barrier (eigenveil.trusted), from an exact sum that only the coordinator sees.
"""

from __future__ import annotations

from typing import Any

from eigenveil.queries.batch import Part
from eigenveil.queries.gradients import Field, Gradient, GradientNorms
from eigenveil.queries.radii import RadiusSearch
from eigenveil.queries.rows import ClippedSum, Count, Energy, Gram, RowNorms
from eigenveil.queries.shuffled import Slot
from eigenveil.queries.single_pass import Boxed, Coordinates, Votes
from eigenveil.queries.subspaces import BlockRanks, CellVotes, Preimage, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.trusted import VECTOR, Eigenvectors, Spectrum
from eigenveil.queries.turned import Subspace
from eigenveil.study.grid import S

OnField = Gradient | GradientNorms | Votes | Coordinates | Boxed | Slot  # about gradients, maybe of a part
Additive = (
    Count
    | RowNorms
    | ClippedSum
    | Energy
    | Gram
    | Gradient
    | GradientNorms
    | Votes
    | Coordinates
    | Boxed
    | BlockRanks
)
Listed = (
    SpanVotes | CellVotes | RankVotes | SpanGap | Preimage
)  # put side by side, site by site, not added up
OnSubspaces = BlockRanks | Listed
Trusted = Spectrum | Eigenvectors | Subspace | RadiusSearch | Slot | Listed
Ask = Additive | Trusted

KINDS: dict[str, type[Any]] = {
    "count": Count,
    "row-norms": RowNorms,
    "clipped-sum": ClippedSum,
    "energy": Energy,
    "gram": Gram,
    "gradient-norms": GradientNorms,
    "gradient": Gradient,
    "votes": Votes,
    "coordinates": Coordinates,
    "boxed": Boxed,
    "slot": Slot,
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


def released(ask: Ask) -> int:
    """How many integers the release of `ask` holds."""
    return ask.length if isinstance(ask, Additive) else ask.released


def together(ask: Ask, sites: int) -> int:
    """How many integers the answers of `sites` sites make together."""
    return ask.length * sites if isinstance(ask, Listed) else ask.length


def part_of(ask: Ask) -> Part | None:
    """The part of the records that `ask` is about; None if it is about all of them."""
    return ask.part if isinstance(ask, OnField) else None


__all__ = [
    "KINDS",
    "NAMES",
    "VECTOR",
    "Additive",
    "Ask",
    "BlockRanks",
    "Boxed",
    "CellVotes",
    "ClippedSum",
    "Coordinates",
    "Count",
    "Eigenvectors",
    "Energy",
    "Field",
    "Gradient",
    "GradientNorms",
    "Gram",
    "Listed",
    "OnField",
    "OnSubspaces",
    "Part",
    "Preimage",
    "RadiusSearch",
    "RankVotes",
    "RowNorms",
    "S",
    "Slot",
    "SpanGap",
    "SpanVotes",
    "Spectrum",
    "Subspace",
    "Trusted",
    "Votes",
    "part_of",
    "released",
    "together",
]

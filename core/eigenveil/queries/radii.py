"""Questions about norms of which only a place on a public grid is released."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.limits import check_centre, check_edges, freeze, need
from eigenveil.queries.possible import is_histogram

MOST_RECORDS = 2**41


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RadiusSearch:
    """The first edge beyond which few enough records lie: #{||z|| >= edges[j]} <= limits[j], both noised.

    Edges are tried from the smallest on. Sites send the histogram of `RowNorms`; what is done to it
    behind the barrier is in eigenveil.mechanisms.sparse_vector.

    Shape: centre (d,), edges (b,), limits (b,) in records; answer (b + 1,); release (1,): the index j, or b
    if no edge will do.
    """

    centre: IntArray
    edges: IntArray
    limits: IntArray

    def __post_init__(self) -> None:
        freeze(self, "centre", "edges", "limits")
        check_centre(self.centre)
        check_edges(self.edges)
        need(int(self.edges[-1]) < 2**31, "row norm edges must stay below 2**31")
        need(self.limits.shape == self.edges.shape, "every edge has a limit")
        inside = bool(((self.limits >= 0) & (self.limits <= MOST_RECORDS)).all())
        need(inside, f"limits are numbers of records, from 0 to {MOST_RECORDS}")

    @property
    def length(self) -> int:
        """Number of bins."""
        return self.edges.size + 1

    @property
    def released(self) -> int:
        """One index."""
        return 1

    def bound(self) -> int:
        """Largest magnitude one record adds to an entry."""
        return 1

    def possible(self, values: IntArray, records: range) -> bool:
        """Whether an honest site could answer this."""
        return is_histogram(values, records)

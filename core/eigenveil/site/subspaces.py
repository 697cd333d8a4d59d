"""The private side of the queries about subspaces: which kernel answers which."""

from __future__ import annotations

from typing import assert_never

from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import BlockRanks, CellVotes, OnSubspaces, Preimage, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.fingerprints import Cells, Pool, Subsamples
from eigenveil.site import modular_spans, projections, span_scores
from eigenveil.study.grid import GridRows


def answer(rows: GridRows, query: OnSubspaces) -> IntArray:
    """What one site says. Shape: rows (n, d) -> (query.length,).

    Privacy: none by itself; it goes to the barrier. What one record changes: [P15], [P16], [P17].
    """
    match query:
        case SpanVotes():
            return frozen(modular_spans.votes(rows, query.subsamples))
        case BlockRanks():
            return frozen(modular_spans.ranks(rows, query.subsamples))
        case CellVotes():
            return frozen(projections.votes(rows, query.cells, [query.cells.rank]))
        case RankVotes():
            return frozen(projections.votes(rows, query.cells, range(1, query.cells.rank + 1)))
        case SpanGap():
            return frozen(span_scores.best_two(rows, query.pool))
        case Preimage():
            found = preimage(rows, query)
            return frozen([1, *found] if found is not None else [0] * query.length)
        case _:
            assert_never(query)


def preimage(rows: GridRows, query: Preimage) -> IntArray | None:
    """What the fingerprint stands for, if it is found among these records. Shape: (query.source.size,)."""
    match query.source:
        case Subsamples() as source:
            return modular_spans.preimage(rows, source, query.fingerprint)
        case Cells() as source:
            return projections.preimage(rows, source, query.fingerprint)
        case Pool() as source:
            return span_scores.preimage(rows, source, query.fingerprint)

"""The private side of the questions about subspaces: which kernel answers which."""

from __future__ import annotations

from eigenveil import flats, projectors, spans
from eigenveil.asks import BlockRanks, CellVotes, OnSubspaces, Preimage, RankVotes, SpanGap, SpanVotes
from eigenveil.asks.subspaces import Blocks, Cells, Pool
from eigenveil.grid import GridRows
from eigenveil.ints import IntArray, frozen


def answer(rows: GridRows, ask: OnSubspaces) -> IntArray:
    """What one site says. Shape: rows (n, d) -> (ask.length,).

    Privacy: none by itself; it goes to the barrier. What one record changes: [P15], [P16], [P17].
    """
    match ask:
        case SpanVotes():
            return frozen(spans.votes(rows, ask.blocks))
        case BlockRanks():
            return frozen(spans.ranks(rows, ask.blocks))
        case CellVotes():
            return frozen(projectors.votes(rows, ask.cells))
        case RankVotes():
            return frozen(projectors.rank_votes(rows, ask.cells))
        case SpanGap():
            return frozen(flats.best_two(rows, ask.pool))
        case Preimage():
            found = preimage(rows, ask)
            return frozen([1, *found] if found is not None else [0] * ask.length)


def preimage(rows: GridRows, ask: Preimage) -> IntArray | None:
    """What the fingerprint stands for, if it is found among these records. Shape: (ask.source.size,)."""
    match ask.source:
        case Blocks() as source:
            return spans.preimage(rows, source, ask.fingerprint)
        case Cells() as source:
            return projectors.preimage(rows, source, ask.fingerprint)
        case Pool() as source:
            return flats.preimage(rows, source, ask.fingerprint)

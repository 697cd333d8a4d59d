"""The private side of subspace-reference: every span of k records, and how many records lie in it.

Source: [SUB], Algorithm 1: u(s) = |X in s| - sup over subspaces t of s of dimension k - 1 of |X in t|. The
supremum is reached by a t that is spanned by records (or holds no more than the span of those it holds), so
it is exact: the spans are built up one dimension at a time, each with the records it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import IntArray
from eigenveil.queries.fingerprints import Pool, fingerprint
from eigenveil.site.modular_spans import inside, reduced
from eigenveil.site.partition import SPREAD, deal
from eigenveil.study.grid import GridRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flat:
    """A span of records: its form (r, d), which records lie in it (n,), and the most that lie in a smaller
    span of records within it."""

    form: IntArray
    held: IntArray
    smaller: int

    @property
    def score(self) -> int:
        """u of [SUB]."""
        return int(self.held.sum()) - self.smaller


def flats(rows: GridRows, pool: Pool) -> list[Flat]:
    """Every span of dimension `pool.rank` of records, once."""
    z = chosen(rows, pool) - pool.centre
    nothing = reduced(z[:0])
    level = [Flat(form=nothing, held=inside(z, nothing), smaller=0)]
    for _ in range(pool.rank):
        above: dict[bytes, Flat] = {}
        for flat in level:
            for wider in _wider(z, flat):
                known = above.get(wider.held.tobytes())
                if known is None or known.smaller < wider.smaller:
                    above[wider.held.tobytes()] = wider
        level = list(above.values())
    return level


def chosen(rows: GridRows, pool: Pool) -> GridRows:
    """At most `pool.most` records, whatever their order: those that come first by a hash of what they are."""
    if len(rows) <= pool.most:
        return rows
    first = np.argsort(deal(rows, SPREAD, pool.key), kind="stable")[: pool.most]
    return np.asarray(rows[first])


def _wider(z: IntArray, flat: Flat) -> list[Flat]:
    """The spans of one dimension more that hold `flat`; each record outside it lies in exactly one."""
    left, out, size = ~flat.held, [], int(flat.held.sum())
    while left.any():
        form = reduced(np.vstack([flat.form, z[left.argmax()]]))
        held = inside(z, form)
        out.append(Flat(form=form, held=held, smaller=size))
        left = left & ~held
    return out


def best_two(rows: GridRows, pool: Pool) -> IntArray:
    """The best score, the second best (or 0), and the fingerprint of the best; zeros if there is none.

    A subspace that is not a span of records scores 0, so 0 is always the score of another one. Ties are
    broken by fingerprint: with no gap nothing is released anyway.

    Shape: (6,).
    Sensitivity: `SpanGap.swing`; one record more raises every score by 0 or 1 [P16].
    """
    ranked = sorted(((f.score, fingerprint(f.form).tolist()) for f in flats(rows, pool)), reverse=True)
    if not ranked:
        return np.zeros(6, dtype=np.int64)
    second = ranked[1][0] if len(ranked) > 1 else 0
    return np.array([ranked[0][0], second, *ranked[0][1]], dtype=np.int64)


def preimage(rows: GridRows, pool: Pool, wanted: IntArray) -> IntArray | None:
    """The span that `wanted` is the fingerprint of. Shape: (pool.rank d,)."""
    for flat in flats(rows, pool):
        if (fingerprint(flat.form) == wanted).all():
            return flat.form.reshape(-1)
    return None

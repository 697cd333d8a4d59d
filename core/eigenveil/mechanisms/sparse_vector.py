"""The first radius beyond which few records lie, by the sparse vector technique (AboveThreshold)."""

from __future__ import annotations

import numpy as np

from eigenveil.accounting.zcdp import scale_of
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, added, frozen
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import RadiusSearch
from eigenveil.study.study import Study


def statistic(total: IntArray) -> IntArray:
    """How many records lie at or beyond each edge. Shape: total (b + 1,) -> (b,).

    One person moves every entry by at most the number of sites they may be at; with one site all in the
    same direction, whether a record joins, leaves or is replaced (the longer one counts at more edges).
    """
    return frozen(np.cumsum(total[::-1])[::-1][1:])


def noise_of(query: RadiusSearch, micro_rho: int, study: Study) -> NoiseSpec:
    """The noise of the limit, then that of each count: epsilon / 2 each, for counts that move by s.

    Counts that all move the same way need it once; else (a person at several sites is replaced) twice.
    """
    sites = study.max_sites_per_person
    apart = study.neighbours.records if sites > 1 else 1
    limit, count = (scale_of((2 * times * sites) ** 2, micro_rho) for times in (1, apart))
    return NoiseSpec(
        blocks=(
            Block(count=1, scale=limit, law=NoiseLaw.LAPLACE),
            Block(count=query.edges.size, scale=count, law=NoiseLaw.LAPLACE),
        )
    )


def release(
    asked: RoundQuery, query: RadiusSearch, total: IntArray, study: Study, noise: NoiseSource
) -> Outcome:
    """The first j with counts[j] + noise_j <= limits[j] + noise, or the number of edges; nothing else.

    Neighbours: as the study says.
    Sensitivity: see `statistic`.
    Privacy: [P12].
    Cost: epsilon = sqrt(2 rho), whatever the number of edges.
    """
    drawn = noise.draw(noise_of(query, asked.micro_rho, study))
    few = added(statistic(total), drawn[1:]) <= added(query.limits, np.repeat(drawn[:1], query.limits.size))
    first = int(few.argmax()) if few.any() else query.edges.size
    return Outcome(values=frozen([first]), sigma=0.0)

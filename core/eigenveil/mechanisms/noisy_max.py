"""Which of several sums is the largest, by report noisy max."""

from __future__ import annotations

from eigenveil.accounting.zcdp import scale_of
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, added, frozen
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import LongestColumn
from eigenveil.study.study import Study


def noise_of(query: LongestColumn, micro_rho: int, study: Study) -> NoiseSpec:
    """The noise of every sum, scale D / epsilon: public, and so drawn ahead.

    Sensitivity: D is how far the lead of one sum over another moves. A person at s sites raises every sum by
    0 to s R^2, so a lead moves by at most s R^2; replaced, a sum may rise while another falls: 2 s R^2.
    """
    lead = study.neighbours.records * study.max_sites_per_person * query.bound
    scale = scale_of(lead**2, micro_rho)
    return NoiseSpec(blocks=(Block(count=query.length, scale=scale, law=NoiseLaw.LAPLACE),))


def release(
    asked: RoundQuery, query: LongestColumn, total: IntArray, study: Study, noise: NoiseSource
) -> Outcome:
    """The least j at which total_j + noise_j is largest, and nothing of the sums.

    Shape: total (d,); values (1,).
    Neighbours: as the study says.
    Sensitivity: see `noise_of`.
    Privacy: [P26].
    Cost: epsilon = sqrt(2 rho), whatever the number of columns.
    """
    noised = added(total, noise.draw(noise_of(query, asked.micro_rho, study)))
    return Outcome(values=frozen([int(noised.argmax())]), sigma=0.0)

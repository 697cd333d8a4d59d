"""Noised eigenvalues of a Gram matrix."""

from __future__ import annotations

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import scale_of
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, added, frozen
from eigenveil.numerics.linalg import SLACK, eigenvalues, symmetric
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import Spectrum
from eigenveil.queries.limits import root_up
from eigenveil.study.study import Study


def statistic(query: Spectrum, total: IntArray) -> IntArray:
    """The eigenvalues rounded to integers, falling. Shape: (query.length,) -> (d,)."""
    return frozen(np.rint(eigenvalues(symmetric(total, query.centre.size))).astype(np.int64))


def l2_bound(query: Spectrum, neighbours: Neighbours, multiplicity: int) -> int:
    """How far one person moves the statistic in L2, rounded up.

    Sensitivity: sum_i (l_i(A) - l_i(B))^2 <= ||A - B||_F^2 (Hoffman & Wielandt), as for `Gram`; plus what
    floats and rounding add on both sides, sqrt(d) (1 + 2 d 2^-48 max trace).
    """
    d, square = query.centre.size, query.radius**2
    moved = root_up(square**2 * neighbours.records)
    blur = 1 + 2 * d * SLACK * float(query.records * square)
    return multiplicity * moved + int(np.ceil(np.sqrt(d) * blur)) + 1


def l1_bound(query: Spectrum, neighbours: Neighbours, multiplicity: int) -> int:
    """As `l2_bound`, in L1.

    Sensitivity: a record raises every eigenvalue, by ||z||^2 <= R^2 in all (Weyl); replacing one is one down
    and one up.
    """
    d, square = query.centre.size, query.radius**2
    blur = 1 + 2 * d * SLACK * float(query.records * square)
    moved = square * neighbours.records
    return multiplicity * moved + int(np.ceil(d * blur)) + 1


def noise_of(asked: RoundQuery, query: Spectrum, study: Study) -> NoiseSpec:
    """The noise of the eigenvalues: public, and so drawn ahead."""
    bound = (l2_bound if asked.law is NoiseLaw.GAUSSIAN else l1_bound)(
        query, study.neighbours, study.max_sites_per_person
    )
    scale = scale_of(bound**2, asked.micro_rho)
    return NoiseSpec(blocks=(Block(count=query.released, scale=scale, law=asked.law),))


def release(asked: RoundQuery, query: Spectrum, total: IntArray, study: Study, noise: NoiseSource) -> Outcome:
    """Eigenvalues plus independent noise.

    Neighbours: as the study says.
    Sensitivity: `l2_bound` (Gaussian) or `l1_bound` (Laplace).
    Privacy: [P10].
    Cost: asked.micro_rho.
    """
    spec = noise_of(asked, query, study)
    return Outcome(values=added(statistic(query, total), noise.draw(spec)), sigma=spec.sigma)

"""[P2] [P6] From the outside: how well do neighbours tell themselves apart by what the barrier publishes?

The audit attacks whole releases (site, sum, barrier, sampler) with the best test there is, the
likelihood ratio along the known change, and bounds mu of Gaussian DP from below. rho-zCDP by
Gaussian noise is mu = sqrt(2 rho), so an honest release stays at or below it.

False-alarm rate: at most 1e-6 an audit (the bound's confidence; at 99 % one run in 100 would fail
for nothing). Power: with 10,000 releases noise 10 % too low is caught, as the planted fault shows;
the shorter audits catch 20 %.
"""

from __future__ import annotations

import numpy as np
import pytest

from eigenveil import barrier
from eigenveil.accounting import MICRO
from eigenveil.asks import Additive, ClippedSum, Energy, Gram, S
from eigenveil.grid import GridRows
from eigenveil.ints import FloatArray, IntArray, frozen
from eigenveil.noise import Block, NoiseSource, NoiseSpec, OsNoise, noise_spec
from eigenveil.plan import Plan
from eigenveil.query import Query
from eigenveil.site import Site
from eigenveil.study import Neighbours
from tests.statistical.checks import mu_at_least
from tests.support import MemoryStore, a_plan

LONG, SHORT = 10_000, 3000  # releases of each data set
MU = 3.0  # where an audit by one threshold sees best; rho = mu^2 / 2
PRICE = int(MU**2 / 2 * MICRO)
ZERO = frozen([0, 0])

Pair = tuple[Additive, Neighbours, GridRows, GridRows]


def rows(*records: list[int]) -> GridRows:
    return np.array(records, dtype=np.int16)


# Data sets that differ in one record, as far apart as their question allows.
PAIRS: dict[str, Pair] = {
    "clipped-sum, add-remove": (
        ClippedSum(centre=ZERO, radius=S),
        Neighbours.ADD_REMOVE,
        rows([5, 6], [-S, S]),
        rows([5, 6], [-S, S], [S, 0]),
    ),
    "gram, replace-one": (
        Gram(centre=ZERO, radius=S), Neighbours.REPLACE_ONE, rows([7, 7], [S, 0]), rows([7, 7], [0, S])
    ),
    "energy, add-remove": (
        Energy(centre=ZERO, radius=S), Neighbours.ADD_REMOVE, rows([0, 1]), rows([0, 1], [S, S])
    ),
}  # fmt: skip


class Quieter(OsNoise):
    """Planted fault: 10 % less noise than was asked for."""

    private = False

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        quiet = [Block(count=b.count, scale=0.9 * b.sigma) for b in spec.blocks]
        return OsNoise().draw(NoiseSpec(blocks=tuple(quiet)))


def scales(spec: NoiseSpec) -> FloatArray:
    return np.concatenate([np.full(block.count, block.sigma) for block in spec.blocks])


def published(plan: Plan, ask: Additive, data: GridRows, noise: NoiseSource, n: int) -> IntArray:
    """n independent releases of one data set. Shape: (n, ask.length)."""
    query = Query(plan_digest=plan.digest, round=0, ask=ask, micro_rho=PRICE)
    total = Site(data).answer(ask)
    return np.array(
        [
            barrier.release(query, total, (), plan=plan, journal=MemoryStore(), noise=noise).values
            for _ in range(n)
        ]
    )


def audited_mu(name: str, noise: NoiseSource, n: int) -> float:
    """The lower bound for mu that an attacker who knows everything else can prove."""
    ask, neighbours, data, other = PAIRS[name]
    plan = a_plan(d=2, epsilon=30.0, neighbours=neighbours)
    sigma = scales(noise_spec(ask, PRICE, neighbours))
    change = (Site(other).answer(ask) - Site(data).answer(ask)) / sigma
    length = float(np.linalg.norm(change))
    base = Site(data).answer(ask)
    without, with_it = (
        (published(plan, ask, part, noise, n) - base) / sigma @ (change / length) for part in (data, other)
    )
    return mu_at_least(without, with_it, length / 2)


@pytest.mark.parametrize(
    ("name", "n"),
    [("clipped-sum, add-remove", LONG), ("gram, replace-one", SHORT), ("energy, add-remove", SHORT)],
)
def test_no_attacker_proves_more_than_the_declared_mu(name: str, n: int) -> None:
    mu = audited_mu(name, OsNoise(), n)
    assert mu <= MU
    assert mu >= 0.8 * MU  # the attack works: the declared guarantee is not merely loose


def test_the_audit_catches_noise_a_tenth_too_low() -> None:
    assert audited_mu("clipped-sum, add-remove", Quieter(), LONG) > MU

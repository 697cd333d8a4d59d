"""[P2] [P6] The whole way of a release, from records to what the barrier returns, audited as one mechanism.

Every release here is charged, drawn and sealed for itself; `test_mu_audits` takes the same mechanisms without
the journal, and over ten times more of them. False-alarm rate: 1e-6 each (see `audit`). Power: noise
10 % too low lies 5 standard deviations of the bound above the claim, and is missed less than once in 10^6.
"""

from __future__ import annotations

import numpy as np
import pytest

from eigenveil import barrier
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.noise.source import NoiseSource, noise_spec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import AdditiveQuery
from eigenveil.site.site import Site
from eigenveil.study.grid import GridRows
from tests.statistical.audit import Gaussian, Mechanism, audit
from tests.statistical.mechanisms import ADD, FEW, GRAM, LEVEL, PRICE, REPLACE, SUM, moves, score, turns
from tests.statistical.noises import Bulk
from tests.support import MemoryStore, a_plan

SAMPLES = 15_000  # a side
PAIRS: dict[str, tuple[AdditiveQuery, Neighbours, tuple[GridRows, GridRows]]] = {
    "clipped-sum": (SUM, ADD, moves(FEW, [4096, 0])),
    "gram, replaced": (GRAM, REPLACE, turns([2400, 3200], [3200, -2400])),
}


def published(name: str) -> Mechanism:
    """Releases of one question about a data set without the record, and with it."""
    query, neighbours, data = PAIRS[name]
    plan = a_plan(d=2, epsilon=30.0, neighbours=neighbours)
    asked = RoundQuery(plan_digest=plan.digest, round=0, query=query, micro_rho=PRICE)
    spec = noise_spec(query, PRICE, neighbours)
    without, with_it = (Site(part).answer(query) for part in data)

    def releases(total: IntArray, noise: NoiseSource, m: int) -> FloatArray:
        """Shape: (m,)."""
        made = (
            barrier.release(asked, total, (), plan=plan, journal=MemoryStore(), noise=noise) for _ in range(m)
        )
        return score(np.array([release.values for release in made]) - without, with_it - without, spec)

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Shape: (m,) each."""
        return releases(without, noise, m), releases(with_it, noise, m)

    return Mechanism(name=name, kind="barrier", claim=Gaussian(mu=LEVEL), attack=attack, tight=0.85)


@pytest.mark.parametrize("name", ["clipped-sum", pytest.param("gram, replaced", marks=pytest.mark.slow)])
def test_no_attacker_proves_more_than_the_declared_mu(name: str) -> None:
    mechanism = published(name)
    verdict = audit(mechanism, Bulk(), SAMPLES)
    assert not verdict.alarm
    assert max(verdict.proven) >= mechanism.tight * verdict.claimed

"""A noise source that records what a release draws, and the settings that every release is tried in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from eigenveil import barrier
from eigenveil import queries as q
from eigenveil.accounting.zcdp import Neighbours
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery, RoundQuery
from eigenveil.protocol.rounds import Release
from tests.core.queries.kinds import SLOTS, a_batch
from tests.core.specification import Noise, Setting
from tests.support import MemoryStore, a_plan

COSTS = (1, 1000, 500_000, 8_000_000)
DELTAS = (10**9, 10**12, 10**17)


class Recorder:
    """A noise source that notes what it is asked for, and draws zeros (or what a test scripts)."""

    private = False

    def __init__(self, *uniforms: float) -> None:
        self.blocks: list[Block] = []
        self.uniforms = list(uniforms)
        self.uniform_calls = 0

    @classmethod
    def of(cls, *blocks: Block) -> Recorder:
        recorder = cls()
        recorder.blocks += blocks
        return recorder

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        self.blocks += spec.blocks
        return np.zeros(spec.length, dtype=np.int64)

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        self.uniform_calls += 1
        if len(self.uniforms) >= count:
            taken, self.uniforms = self.uniforms[:count], self.uniforms[count:]
            return np.array(taken)
        return np.full(count, 2.0**-6)


@cache
def plan_of(neighbours: Neighbours, sites: int) -> Plan:
    return a_plan(sites=("north",), neighbours=neighbours, max_sites_per_person=sites)


def settings(*deltas: int) -> Iterator[tuple[Plan, Setting]]:
    for neighbours, sites, cost, delta in product(Neighbours, (1, 3), COSTS, deltas or (0,)):
        adds = neighbours is Neighbours.ADD_REMOVE
        yield plan_of(neighbours, sites), Setting(adds=adds, sites=sites, micro_rho=cost, atto_delta=delta)


def query_of(
    plan: Plan, query: q.Query, s: Setting, distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN
) -> RoundQuery:
    batch = q.batch_of(query)
    if batch is not None:
        dealt = a_batch(plan.digest, batch.batches, batch.index)
        query = replace(query, batch=dealt)  # type: ignore[arg-type]
    priced = PricedQuery(
        query=query, micro_rho=s.micro_rho, atto_delta=s.atto_delta, distribution=distribution
    )
    return RoundQuery(priced, plan.digest, batch.index if batch else 0)


def released(
    plan: Plan, round_query: RoundQuery, noise: NoiseSource, total: IntArray | None = None
) -> Release:
    zeros = np.zeros(q.total_length(round_query.query, 1), dtype=np.int64)
    return barrier.release(
        round_query,
        zeros if total is None else total,
        plan.study.federation.sites,
        plan=plan,
        journal=MemoryStore(),
        noise=noise,
    )


def drew(noise: Recorder, *wanted: Noise) -> bool:
    blocks = [
        ("gaussian" if b.distribution is NoiseDistribution.GAUSSIAN else "laplace", b.count, b.scale)
        for b in noise.blocks
    ]
    return len(blocks) == len(wanted) and all(
        want.is_drawn(*block) for want, block in zip(wanted, blocks, strict=True)
    )


def in_a_pass(plan: Plan, round_query: RoundQuery) -> tuple[list[RoundQuery], list[RoundQuery]]:
    """Paid: the query, also as the first batch of a pass; and not paid: its later batches."""
    if not isinstance(round_query.query, q.GradientQuery):
        return [round_query], []
    s = Setting(
        adds=True, sites=1, micro_rho=round_query.priced.micro_rho, atto_delta=round_query.priced.atto_delta
    )
    requests = [replace(round_query.query, batch=a_batch("", SLOTS, index)) for index in (0, 1, SLOTS - 1)]
    first, *later = [query_of(plan, query, s) for query in requests]
    return [round_query, first], later

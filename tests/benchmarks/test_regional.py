"""Regions change nothing in a release: sums associate, votes keep their order, and noise is added once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest

from benchmarks.regional import Region, run_regions
from eigenveil.algorithms import ALGORITHMS
from eigenveil.noise.seeded import SeededNoise
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.session import Session
from eigenveil.simulation import MemoryJournal, run_study
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.study import Federation, Scaling
from tests.support import a_study

# The names of a region's sites are not next to each other, so that votes have to be sorted at the top.
REGIONS = {"east": ("a", "d", "e"), "west": ("b", "f"), "isle": ("c",)}
SITES = tuple(sorted(name for names in REGIONS.values() for name in names))
# A site that drops out of a region, a region whose only site does, and all of them back.
ABSENT: Mapping[int, tuple[str, ...]] = {0: ("d",), 1: ("c",), 3: ("b", "e"), 4: ("b", "f")}
SCALED = (Algorithm.GAUSS_COV, Algorithm.DP_PCA)  # rows are seen through a frame
RUN = [name for name in ALGORITHMS if not name.properties.single_records and not name.properties.one_site]


def rows(site: str, algorithm: Algorithm) -> np.ndarray:
    """300 records of four columns, for the subspace algorithms in a plane."""
    generator = np.random.default_rng(SITES.index(site))
    if algorithm.value.startswith("subspace"):
        a, b = generator.integers(-900, 900, (2, 300))
        return np.stack([a, b, a + b, a - b], axis=1).astype(np.int16)
    drawn = generator.normal(size=(300, 4)) * [1500, 700, 300, 150]
    return np.clip(np.rint(drawn), -S, S).astype(np.int16)


def sites_of(algorithm: Algorithm) -> dict[str, Site]:
    return {name: Site(rows(name, algorithm)) for name in SITES}


@cache
def plan_of(algorithm: Algorithm) -> Plan:
    study = a_study(
        d=4, components=2, algorithm=algorithm, epsilon=3.0, expected_records=1800, max_records=10_000,
        federation=Federation(sites=SITES, quorum=2),
        scaling=Scaling.STANDARD if algorithm in SCALED else Scaling.BOUNDS,
    )  # fmt: skip
    return make_plan(study, analyst="simulation")


def present(round_query: RoundQuery) -> Sequence[str]:
    return [name for name in SITES if name not in ABSENT.get(round_query.round, ())]


def released(session: Session) -> list[str]:
    """Digests, over the noised values and the names of who is in them."""
    return [release.digest for release in session.releases]


@pytest.mark.parametrize("algorithm", RUN, ids=str)
def test_a_release_through_regions_is_bit_for_bit_the_one_without(algorithm: Algorithm) -> None:
    plan, sites = plan_of(algorithm), sites_of(algorithm)
    flat, regional = Session(plan), Session(plan)
    run_study(flat, sites, journal=MemoryJournal(plan), noise=SeededNoise(3), present=present)
    regions = [
        Region(name, {one: sites[one] for one in names}, most=plan.study.max_records)
        for name, names in REGIONS.items()
    ]
    run_regions(regional, regions, journal=MemoryJournal(plan), noise=SeededNoise(3), present=present)
    assert released(regional) == released(flat)
    assert all("d" not in release.present for release in regional.releases[:1])

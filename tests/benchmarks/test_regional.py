"""Regions change nothing in a release: sums associate, votes keep their order, and noise is added once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.regional import Region, RegionalAnswer, joined, run_regions
from eigenveil.algorithms import ALGORITHMS
from eigenveil.errors import Code
from eigenveil.noise.seeded import SeededNoise
from eigenveil.numerics.encoding import frozen
from eigenveil.planning.choose import make_plan
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES, Query
from eigenveil.session import Session
from eigenveil.simulation import MemoryJournal, run_study
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.study import Federation, Scaling
from tests.support import a_query, a_study, every_query, refused

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


def answers(query: Query, sites: Mapping[str, Site], here: Collection[str] = SITES) -> list[RegionalAnswer]:
    round_query = a_query(query)
    return [
        Region(name, {one: sites[one] for one in names}, most=300).answer(round_query, here)
        for name, names in REGIONS.items()
    ]


def test_a_region_sends_as_many_numbers_as_one_site_unless_they_are_votes() -> None:
    sites = sites_of(Algorithm.GAUSS_COV)
    for query in every_query().values():
        sizes = {one.values.size for one in answers(query, sites)}
        assert sizes in ({query.length}, {query.length * len(names) for names in REGIONS.values()}), NAMES[
            type(query)
        ]


def test_a_region_answers_once_and_for_its_own_sites_only() -> None:
    round_query, one = (
        a_query(every_query()["count"]),
        RegionalAnswer(region="east", present=("a",), values=frozen([7])),
    )
    for claimed in (("a", "d", "b"), ("a", "a", "d"), ("a", "d", "nobody")):
        with refused(Code.BAD_CONTRIBUTION, "region east answered for sites that are not its own"):
            joined(round_query, [replace(one, present=claimed)], REGIONS, 300)
    with refused(Code.BAD_CONTRIBUTION, "answered twice"):
        joined(round_query, [one, replace(one, present=("d",))], REGIONS, 300)


def test_a_region_cannot_add_what_the_sites_that_it_names_cannot_hold() -> None:
    query, most = every_query()["count"], 300
    for many, sites in ((600, ("a", "d")), (300, ("a",))):
        message = RegionalAnswer(region="east", present=sites, values=frozen([many]))
        total, _ = joined(a_query(query), [message], REGIONS, most)
        assert total.tolist() == [many]
        lie = RegionalAnswer(region="east", present=sites, values=frozen([many + 1]))
        with refused(Code.BAD_CONTRIBUTION, "cannot have"):
            joined(a_query(query), [lie], REGIONS, most)

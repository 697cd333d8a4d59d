"""The long run's verdicts, and faults that it must find."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import comb
from pathlib import Path

import pytest

from tests.torture.crashes.forked import COORDINATOR
from tests.torture.long import planted
from tests.torture.long.daemons import Kind
from tests.torture.long.growth import (
    FALSE_ALARM,
    LENGTH,
    TOLERANCES,
    WARM,
    Lives,
    Sample,
    Verdict,
    limit,
    theil_sen,
    verdicts,
)
from tests.torture.long.long_run import Size, long_run

SITES = tuple(f"site-{number}" for number in range(20))
QUIET = {("site", Kind.KILL): 2}


def lives(growth: float, noise: float, studies: int = 300, restart_every: int = 50) -> Lives:
    """Daemons that grow by so many KiB a study, and begin anew every so many studies."""
    chance, found = random.Random(1), Lives()
    for name in (COORDINATOR, *SITES):
        for study in range(studies):
            age = study % restart_every
            memory = 50_000 + (3000 if age < WARM // 2 else 5000) + growth * age + chance.gauss(0, noise)
            found.add(name, study // restart_every, Sample(study, round(memory), 30, 20))
    return found


def growing(found: Lives) -> set[tuple[str, str]]:
    return {(one.who, one.measure) for one in verdicts(found, COORDINATOR, SITES, since=150) if one.grows}


def test_theil_sen_ignores_one_outlier() -> None:
    assert theil_sen([(0, 0), (1, 2), (2, 4), (3, 600), (4, 8)]) == pytest.approx(2, abs=1)


@pytest.mark.parametrize("count", [1, 13, 14, 30, 200])
def test_limit_is_the_smallest_that_keeps_the_false_alarm(count: int) -> None:
    def chance(least: int) -> float:
        return sum(comb(count, k) for k in range(least, count + 1)) / 2**count

    assert chance(limit(count)) <= FALSE_ALARM < chance(limit(count) - 1)


def test_a_verdict_needs_as_many_slopes_as_can_alarm() -> None:
    few, enough = (
        Verdict(who="sites", measure="KiB", slopes=(10 * TOLERANCES["KiB"],) * count) for count in (13, 14)
    )
    assert (few.judged, few.grows, enough.judged, enough.grows) == (False, False, True, True)


def test_flat_memory_with_noise_and_restarts_is_no_growth() -> None:
    assert growing(lives(0.0, 500.0)) == set()


def test_a_leak_is_found_of_the_coordinator_and_of_the_sites() -> None:
    assert growing(lives(4 * TOLERANCES["KiB"], 200.0)) == {("coordinator", "KiB"), ("sites", "KiB")}


def test_no_stretch_holds_a_restart_or_the_first_samples_of_a_life() -> None:
    for stretch in lives(0.0, 0.0).stretches(COORDINATOR, since=0):
        ages = [one.studies % 50 for one in stretch]
        assert ages == list(range(ages[0], ages[0] + LENGTH))
        assert ages[0] >= WARM


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("faulty", "size", "fault"),
    [
        (planted.leak, Size(sites=14, one_by_one=38, at_once=2, counts={}), "it grows: sites"),
        (planted.charge_twice_after_restart, Size(sites=3, one_by_one=8, at_once=2, counts=QUIET),
         "site-0"),
    ],
)  # fmt: skip
async def test_long_run_finds(faulty: Callable[[], object], size: Size, fault: str, tmp_path: Path) -> None:
    faults, figures = await long_run(tmp_path, size, faulty=faulty)
    assert any(one.startswith(fault) for one in faults), (faults, figures)
    assert all(one.startswith(fault) for one in faults), faults

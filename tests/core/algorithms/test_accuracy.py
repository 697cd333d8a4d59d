"""Accuracy with real noise at epsilon 1, 15 % margin: the targets of benchmarks/accuracy/targets.py.

A median of 20 runs is random: a quick cell may lie 2.8 standard errors below its bound, and a right build
fail it 3 times in 1,000. Whoever fails is therefore measured over 120 runs, and only that counts.
Over 240 runs of every quick cell, resampled, the bound lay at least 7.6 standard errors of such a median
above its mean: a right build fails less than once in 10^10 times. Targets within 15 % of 1 are reported by
benchmarks/accuracy/targets.py and are no test: nothing can miss them."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.targets import MARGIN, TARGETS, Target, measure
from benchmarks.families import bundled

FAMILIES = {family.name: family for family in bundled()}
# The default suite takes the real tables, small as they are; `make test-full` all cells. Digits at q = 0.7 is
# missed: 1.28 times its target over 120 runs (core/decisions/0003-radius-by-balance.md).
QUICK = {"breast cancer", "digits"}
MISSED = {("digits", 0.7)}


def name(target: Target) -> str:
    rule = "balance" if target.radius is None else f"q={target.radius}"
    return f"{target.family} {target.algorithm.value} {rule}"


def cells(quick: bool) -> list[Target]:
    return [
        target
        for target in TARGETS
        if target.family in FAMILIES
        and (target.family in QUICK) is quick
        and (target.family, target.radius) not in MISSED
        and MARGIN * target.sine < 1
    ]


def met(target: Target) -> bool:
    """True if the median of 20 runs, or where they fail that of 120, is within the margin."""
    family, bound = FAMILIES[target.family], MARGIN * target.sine
    return any(measure(family, target, repeats) <= bound for repeats in (20, 120))


@pytest.mark.parametrize("target", cells(quick=True), ids=name)
def test_meets_its_target(target: Target) -> None:
    assert met(target)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("target", cells(quick=False), ids=name)
def test_meets_its_target_on_larger_data(target: Target) -> None:
    assert met(target)

"""Every attack on a daemon in this process, and impersonations of analysts on one of its own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.site.support import Stage, a_stage
from tests.torture.peers.malicious import ATTACKS, IMPERSONATIONS, Attack, assault, process

QUICK = "a plan in her name by another key"
SLOW = (pytest.mark.slow,)


@asynccontextmanager
async def here(stage: Stage, log: Path) -> AsyncIterator[None]:
    lines = logging.FileHandler(log)
    logger = logging.getLogger("eigenveil")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        async with stage.daemon():
            yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
        lines.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_it_is_refused_and_logged_and_nothing_is_sent(attack: Attack, tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=attack.approval)
    assert (await assault(stage, attack, here, tmp_path / "log")).faults == []


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] * (one.name != QUICK))
        for one in IMPERSONATIONS
    ],
)
async def test_impersonation_of_a_pinned_analyst_is_refused(attack: Attack, tmp_path: Path) -> None:
    """[R31]: the site is a process of its own."""
    stage = a_stage(tmp_path, approval=attack.approval)
    assert (await assault(stage, attack, process, tmp_path / "log")).faults == []


@pytest.mark.parametrize("name", [pytest.param("a study without its signature", marks=SLOW), QUICK])
async def test_impersonation_succeeds_only_where_no_key_is_pinned(name: str, tmp_path: Path) -> None:
    (attack,) = (replace(one, pins=False, settled=()) for one in IMPERSONATIONS if one.name == name)
    outcome = await assault(a_stage(tmp_path), attack, process, tmp_path / "log")
    assert "contributions left" in outcome.faults[0]

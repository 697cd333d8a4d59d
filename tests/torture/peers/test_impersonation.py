"""[R31] A coordinator that acts in a trusted analyst's name is refused, each time by a site's own process.

In `make test` one attack, and that it succeeds where nobody pinned a key; each of the others takes two
seconds of a processor.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.client.site.support import a_stage
from tests.torture.peers.malicious import IMPERSONATIONS, Attack, assault, process

BY_NAME = {attack.name: attack for attack in IMPERSONATIONS}
QUICK = "a plan in her name by another key"
EVERY = [
    pytest.param(one, id=one.name, marks=[] if one.name == QUICK else [pytest.mark.slow])
    for one in IMPERSONATIONS
]


@pytest.mark.parametrize("attack", EVERY)
async def test_a_site_that_knows_its_analysts_refuses(attack: Attack, tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=attack.approval)
    assert (await assault(stage, attack, process, tmp_path / "log")).faults == []


@pytest.mark.parametrize(
    "name", [pytest.param("a study without its signature", marks=pytest.mark.slow), QUICK]
)
async def test_a_site_without_pins_answers_as_before_an_upgrade(name: str, tmp_path: Path) -> None:
    """So the refusals above come of the pins."""
    attack = replace(BY_NAME[name], pins=False, settled=())
    outcome = await assault(a_stage(tmp_path), attack, process, tmp_path / "log")
    assert "contributions left" in outcome.faults[0]

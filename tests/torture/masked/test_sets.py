"""Every attack on the sets of a masked study, on one daemon in this process; and that one that succeeds is
seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from tests.torture.masked.assault import Assault, Outcome
from tests.torture.masked.scene import acquainted
from tests.torture.masked.sets import ATTACKS, Attack
from tests.torture.peers.test_malicious import here


def outcomes(folder: Path, attacks: tuple[Attack, ...]) -> list[Outcome]:
    log = folder / "log"
    log.touch()
    return asyncio.run(Assault(peers=acquainted(folder), log=log).all(attacks, here))


def test_a_site_answers_no_set_but_the_one_that_it_was_told_first(tmp_path: Path) -> None:
    found = outcomes(tmp_path, ATTACKS)
    assert {one.name: one.faults for one in found if one.faults} == {}
    assert sum(one.answered for one in found) > 2 * len(ATTACKS)
    scores = np.concatenate([score for one in found for score in one.scores])
    assert abs(np.mean(scores**2) - 1) < 6 * np.sqrt(2 / scores.size)

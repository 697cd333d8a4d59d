"""What judges masked federations of processes finds each planted fault; and the checks in small."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from eigenveil.mechanisms import apply_mechanism
from eigenveil.noise.source import OsNoise
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.rounds import Release
from eigenveil.session import Session
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from tests.client.site.masking import EVERY, masked_plan
from tests.torture.masked import exact, federation
from tests.torture.masked.exact import PLACES, Found, Place, verdict
from tests.torture.masked.known import SHARE, wrong_round

PLAN = masked_plan()
RECORDS = {name: np.random.default_rng(seed).uniform(0, 10, (60, 3)) for seed, name in enumerate(EVERY)}


def released(present: tuple[str, ...], shares: int) -> dict[str, Any]:
    """What is told of a study in which so many shares of noise were added."""
    session, rounds = Session(PLAN), []
    sites = [Site(to_grid(RECORDS[name], PLAN.study)) for name in present]
    while (round_query := session.pending) is not None:
        total = frozen(np.sum([site.answer(round_query.query) for site in sites], axis=0, dtype=np.int64))
        sigma = apply_mechanism(round_query.priced, total, PLAN.study, OsNoise(), EVERY).sigma
        release = Release.of(round_query, frozen(total + shares * SHARE), sigma, EVERY)
        rounds.append({"round": round_query.round, "present": list(EVERY), "release": release.digest})
        session.feed(release)
    return {"rounds": rounds}


def test_a_sum_with_a_share_too_few_or_too_many_or_an_answer_twice_is_found() -> None:
    assert wrong_round(PLAN, released(EVERY, 4), RECORDS) == ""
    assert "round 0 is not the sum" in wrong_round(PLAN, released(EVERY, 3), RECORDS)
    assert "round 0 is not the sum" in wrong_round(PLAN, released(EVERY, 5), RECORDS)
    assert "round 0 is not the sum" in wrong_round(PLAN, released((*EVERY, EVERY[0]), 4), RECORDS)


def found(*hits: str, size: int = 1) -> Found:
    return Found(places=dict.fromkeys(PLACES, Place(size=size, hits=frozenset(hits))))


def test_a_hit_a_blind_search_or_a_study_that_failed_does_not_pass() -> None:
    assert verdict(found(), found("a")).passed
    for masked, central in (
        (found("a"), found("a")),
        (found(), found()),
        (found(size=0), found("a")),
        (Found(failure="no", places={}), found("a")),
        (found(), Found(failure="no", places={})),
    ):
        assert not verdict(masked, central).passed


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", [federation, exact])
def test_the_checks_as_the_torture_runs_them(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests run beside it, so a deadline is measured by what starting a site takes at this time."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", "import eigenveil_client.site.commands.main"], check=True)
    start_seconds = time.monotonic() - begin
    monkeypatch.setattr(federation, "DEADLINE", max(federation.DEADLINE, 10 * start_seconds))
    line = check.run(0.25)
    assert line.passed, line.detail

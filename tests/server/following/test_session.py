"""Work after a wide release runs in a process of its own, to the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import IO

import numpy as np
import pytest

from eigenveil import Column, Federation, Study, simulate
from eigenveil.errors import Code, InternalError
from eigenveil.reporting.result import result_of
from eigenveil.session import Session
from eigenveil.simulation import Simulation
from eigenveil.study.algorithm import Algorithm
from eigenveil_server.rounds import study_session
from eigenveil_server.rounds.study_session import Message, StudySession, read

D = 150
DYING = """
import os
import {module} as follower
left, say = [None] * {answers}, follower.write

def write(*words: object) -> None:
    if left:
        left.pop()
        say(*words)
    if not left:
        os._exit(1)

follower.write = write
follower.main()
"""


def run(algorithm: Algorithm, d: int = D) -> Simulation:
    columns = tuple(Column(name=f"c{i}", unit="", lower=-5, upper=5) for i in range(d))
    sites = Federation(sites=("anna",), minimum_cohort=5)
    study = Study(
        name="wide",
        columns=columns,
        epsilon=8.0,
        delta=1e-6,
        components=3,
        algorithm=algorithm,
        federation=sites,
    )  # fmt: skip
    rows = np.random.default_rng(1).normal(size=(3000, d)) * np.geomspace(1.5, 0.1, d)
    return simulate(study, {"anna": rows}, seed=3)


@contextmanager
def wide(response: Simulation) -> Iterator[StudySession]:
    here = StudySession(response.plan)
    try:
        yield here
    finally:
        here.close()
        assert here._process is None


def python(words: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-P", "-c", words], stdin=pipe, stdout=pipe)


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_session, "WIDE_RELEASE_NUMBERS", D)


@pytest.mark.parametrize("algorithm", [Algorithm.GAUSS_COV, Algorithm.REFINED_COV])
def test_questions_and_result_are_those_of_this_process(algorithm: Algorithm) -> None:
    response = run(algorithm)
    alone = Session(response.plan)
    with wide(response) as here:
        for release in response.releases:
            assert here.pending is not None
            assert alone.pending is not None
            assert here.pending.digest == alone.pending.digest
            here.feed(release)
            alone.feed(release)
            assert (here.pending is None) == (alone.pending is None)
            assert here.spent == alone.spent
            assert (here._local_session is None) == any(one.values.size > D for one in here.releases)
        found, expected = here.result.to_dict(), result_of(response.plan, alone.result).to_dict()
        assert json.dumps(found) == json.dumps(expected)


@pytest.mark.parametrize("answers", [0, 2])
def test_one_that_is_ended_again_and_again_ends_the_study(
    answers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it answered before: that is no answer to the last release."""
    response, started = run(Algorithm.GAUSS_COV, 40), list[object]()

    def broken(module: str) -> subprocess.Popen[bytes]:
        started.append(None)
        return python(DYING.format(module=module, answers=answers))

    def late(stream: IO[bytes]) -> Message | None:
        found = read(stream)
        time.sleep(0.3)  # so that it is gone before it is told more
        return found

    monkeypatch.setattr(study_session, "read", late)

    monkeypatch.setattr(study_session, "start_isolated", broken)
    with wide(response) as here:
        with pytest.raises(InternalError, match="possibly for lack of memory; the release is stored"):
            here.replay(response.releases)
        assert len(started) == study_session.ATTEMPTS == caplog.text.count("follower-ended")
        assert here.releases == list(response.releases[:-1])


def test_a_refusal_is_raised_unchanged() -> None:
    response = run(Algorithm.GAUSS_COV, 40)
    with wide(response) as here:
        here.replay(response.releases[:-1])
        with pytest.raises(InternalError, match="does not answer the query of round 7") as refused:
            here.feed(replace(response.releases[-1], round=9))
        assert refused.value.code is Code.BUG


def test_a_study_that_is_stopped_waits_for_nothing_and_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    response, entered = run(Algorithm.GAUSS_COV, 40), Event()

    def stuck(module: str) -> subprocess.Popen[bytes]:
        entered.set()
        return python("import time; time.sleep(600)")

    monkeypatch.setattr(study_session, "start_isolated", stuck)
    with ThreadPoolExecutor(1) as threads:
        with wide(response) as here:
            fed = threads.submit(here.replay, response.releases)
            assert entered.wait(30)
        with pytest.raises(InternalError, match="is closed in this process"):
            fed.result(30)
    assert "follower-ended" not in caplog.text

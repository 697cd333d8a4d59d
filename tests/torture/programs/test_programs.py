"""Random programs in small, and that a double count would be seen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.numerics.encoding import IntArray
from eigenveil_server.rounds.round import Round, Run
from tests.torture.programs.members import template
from tests.torture.programs.operations import LONGEST, Op, drawn
from tests.torture.programs.programs import FOUND, faults_of, hunt, keep, kept, shrunk, verdict
from tests.torture.programs.world import World

FEW = 12


@pytest.fixture(scope="module")
def members() -> Iterator[Path]:
    with template() as folder:
        yield folder


@pytest.mark.slow
def test_a_few_programs_end_with_exact_sums(members: Path, tmp_path: Path) -> None:
    wrong, result = hunt(FEW, found=tmp_path)
    line = verdict(FEW, wrong, result)
    assert line.passed, line.detail
    assert list(tmp_path.iterdir()) == []


def test_what_was_found_stays_mended(members: Path) -> None:
    kept_here = sorted(FOUND.glob("program-*.json"))
    assert kept_here
    for path in kept_here:
        assert faults_of(*kept(path), members)[0] == [], path.name


def test_programs_are_as_long_as_promised_and_the_same_seed_draws_the_same() -> None:
    lengths = [len(drawn(seed)) for seed in range(300)]
    assert max(lengths) <= LONGEST
    assert sum(length > 30 for length in lengths) > 75
    assert drawn(5) == drawn(5) != drawn(6)


@pytest.mark.slow
def test_the_same_program_ends_the_same_way_twice(members: Path) -> None:
    assert faults_of(drawn(5), 5, members) == faults_of(drawn(5), 5, members)


REAL = Round.add_answer


async def added_twice(self: Round, site: str, mac: bytes, values: IntArray, run: Run) -> bool:
    """The planted fault: an answer that comes again is added again."""
    repeated = await REAL(self, site, mac, values, run)
    if repeated:
        self._total.add(site, values)
    return repeated


@pytest.mark.slow
def test_an_answer_that_is_added_twice_is_caught_kept_and_shrunk(members: Path, tmp_path: Path) -> None:
    with mock.patch.object(Round, "add_answer", added_twice):
        seed = next(seed for seed in range(300) if faults_of(drawn(seed), seed, members)[0])
        small = shrunk(drawn(seed), seed, members)
        faults = faults_of(small, seed, members)[0]
        assert any("is not the sum of" in fault for fault in faults), faults
        assert 4 * len(small) <= len(drawn(seed))
        path = keep(small, seed, faults, tmp_path)
        assert kept(path) == (small, seed)
        assert json.loads(path.read_text())["faults"] == faults
    assert faults_of(small, seed, members)[0] == []


def test_a_program_that_never_ends_a_study_is_caught(members: Path) -> None:
    program = (Op(kind="submit", name='{"algorithm": "gauss-cov", "quorum": 3, "deadline_seconds": 500.0}'),)
    with mock.patch.object(World, "_start_site"):
        faults = faults_of(program, 1, members)[0]
    assert any("no end within 60 s" in fault for fault in faults), faults


def test_a_run_in_which_nothing_happened_does_not_pass() -> None:
    assert not verdict(1, [], Counter()).passed

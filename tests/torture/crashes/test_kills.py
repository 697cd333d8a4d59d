"""The failpoints are what they are said to be, and the check of kills sees what it is there to see."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.repo.tree import files
from tests.torture.crashes.disk_errors import Choice, faults
from tests.torture.crashes.kills import AT_COORDINATOR, AT_ENROLMENT, AT_OPERATOR, AT_SITE, CORE
from tests.torture.crashes.vfs_faulty import Kind
from tests.torture.model import Charge, SealedRelease, Snapshot, Witness

KILLED = AT_COORDINATOR.keys() | AT_SITE.keys() | AT_ENROLMENT.keys() | AT_OPERATOR.keys()
# Of tests/server/recovery/test_lost_draws.py, test_rollover.py and test_release_key.py of tests/integration,
# tests of migrations, test_declined_plans.py, test_person_counts.py and test_moving.py of
# tests/client/site/state, programs, and
# tests/server/masked/test_masked_answers.py.
ELSEWHERE = {
    "failure-charged", "authorities-listed", "plan-declining", "study-cancelling", "answer-late",
    "release-key-made", "release-key-listed", "release-key-signed-again", "release-key-replaced",
    "upgrade-backed-up", "upgrade-stepping", "upgrade-checked", "upgrade-committed",
    "move-checked", "move-written", "move-marked", "person-count-sealing",
    "person-count-sealed", "loading-ahead",
}  # fmt: skip
PLACES = ("core", "common", "server", "client")
STUDY = "a" * 64


def called(name: str) -> Iterator[tuple[Path, str]]:
    """Places where production code calls a function of this name, with the text."""
    for path in files("*.py", *PLACES):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if name in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                first = node.args[0] if node.args else None
                yield path, str(first.value) if isinstance(first, ast.Constant) else ""


def test_every_failpoint_has_one_name_and_is_killed_at_or_passed_in_a_scenario() -> None:
    names = [name for _, name in called("failpoint")]
    assert len(names) == len(set(names)) >= 25
    assert set(names) == KILLED | ELSEWHERE
    assert set(CORE) < KILLED


def test_nothing_in_production_arms_a_failpoint() -> None:
    named = [path for path in files("*.py", *PLACES) if "import arm" in path.read_text()]
    assert [*called("arm"), *called("disarm"), *named] == []


def books(
    sealed: Mapping[int, SealedRelease], charged: Mapping[int, Charge], paid: Mapping[int, Charge]
) -> Snapshot:
    site = {"anna": {(STUDY, round): charge for round, charge in paid.items()}}
    return Snapshot(
        charged={(STUDY, round): charge for round, charge in charged.items()},
        sealed={(STUDY, round): one for round, one in sealed.items()}, states={STUDY: "running"}, bundles={},
        before=site, paid=site, doubled=(),
    )  # fmt: skip


ROUNDS = {n: SealedRelease(query=f"q{n}", micro_rho=7, present=("anna",), digest=f"d{n}") for n in (0, 1)}
PAID = {n: Charge(query=f"q{n}", micro_rho=7) for n in (0, 1)}
GOOD = books(ROUNDS, PAID, PAID)


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        (books(ROUNDS, {0: PAID[0]}, PAID), "under-charge: the coordinator"),
        (books(ROUNDS, PAID | {1: Charge(query="q1", micro_rho=6)}, PAID), "under-charge: the coordinator"),
        (books(ROUNDS, PAID, {0: PAID[0]}), "under-charge: anna is in"),
        (books(ROUNDS, PAID, PAID | {1: Charge(query="q1", micro_rho=1)}), "under-charge: anna paid less"),
        (books({0: ROUNDS[0]}, PAID, PAID), "is gone"),
        (books(ROUNDS | {1: replace(ROUNDS[1], digest="x")}, PAID, PAID), "with different bytes"),
        (books(ROUNDS, PAID, PAID | {1: Charge(query="x", micro_rho=7)}), "another query"),
        (books(ROUNDS, PAID, PAID | {4: Charge(query="q4", micro_rho=7)}), "before round 3 was sealed"),
        (books(ROUNDS, PAID | {n: Charge(query="q", micro_rho=7) for n in (2, 3)}, PAID), "over-charge"),
        (replace(GOOD, doubled=("anna charged twice",)), "anna charged twice"),
    ],
)
def test_the_witness_sees(planted: Snapshot, fault: str) -> None:
    witness = Witness()
    witness.look(GOOD)
    assert witness.faults == []
    witness.look(planted)
    assert any(fault in result for result in witness.faults), witness.faults


def test_the_witness_sees_what_was_published_too_early() -> None:
    witness = Witness()
    witness.published(STUDY, 1, GOOD)
    assert witness.faults == []
    witness.published(STUDY, 2, GOOD)
    witness.published(STUDY, 1, books(ROUNDS, {0: PAID[0]}, PAID))
    assert [result.rsplit(" ", 2)[-1] for result in witness.faults] == ["sealed", "charged"]


@pytest.mark.slow
async def test_a_failing_disk_ends_the_process(tmp_path: Path) -> None:
    chosen = (("coordinator", Kind.SYNC, 20), ("coordinator", Kind.FULL, 60), ("site", Kind.WRITE, 40))
    assert await faults(tmp_path, [Choice(*choice) for choice in chosen]) == []

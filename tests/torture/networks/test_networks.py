"""The judge of bad networks finds each planted fault, and a machine without namespaces never passes."""

from __future__ import annotations

import importlib
import shutil
from dataclasses import replace
from unittest import mock

import pytest

from tests.torture import __main__ as torture
from tests.torture import preflight
from tests.torture.networks import nets, networks
from tests.torture.networks.networks import BAD, FAR, Outcome, Scenario, faults

HONEST = Outcome(
    state="released", failure="", ended_after=1.0, releases={0: "a", 1: "b"}, disturbed=3
)  # fmt: skip
FAILED = replace(
    HONEST, state="failed", failure=f"{FAR}: did not answer", ended_after=21.0, releases={0: "a"}
)  # fmt: skip
ALONE = replace(HONEST, releases={0: "a", 1: "of two"}, without=(1,), tried=3)
NAMED = {one.name: one for one in BAD}
BORNE, LOST, WITHOUT = NAMED["20 % loss"], NAMED["partition for good"], NAMED["masked partition for good"]


def test_honest_outcomes_pass() -> None:
    assert faults(HONEST, HONEST, BORNE) == []
    assert faults(FAILED, HONEST, LOST) == []
    assert faults(ALONE, HONEST, WITHOUT) == []


@pytest.mark.parametrize(
    ("scenario", "outcome", "fault"),
    [
        (BORNE, replace(HONEST, wrong=("under-charge",)), "under-charge"),
        (BORNE, replace(HONEST, releases={0: "a", 1: "x"}), "another result than undisturbed"),
        (BORNE, replace(HONEST, releases={0: "a"}), "fewer rounds than undisturbed"),
        (BORNE, replace(HONEST, disturbed=0), "nothing was disturbed"),
        (BORNE, replace(HONEST, state="running for ever"), "running for ever: "),
        (BORNE, FAILED, f"failed: {FAR}: did not answer"),
        (BORNE, replace(HONEST, without=(1,)), f"rounds [1] were released without {FAR}"),
        (LOST, replace(FAILED, releases={0: "x"}), "another result than undisturbed"),
        (WITHOUT, FAILED, f"failed: {FAR}: did not answer"),
        (WITHOUT, HONEST, f"rounds [] were released without {FAR}"),
        (WITHOUT, replace(ALONE, tried=2), "2 attempts at 2 rounds, of which one was cut"),
        (WITHOUT, replace(ALONE, releases={0: "x", 1: "of two"}), "another result than undisturbed"),
    ],
)
def test_a_planted_fault_is_found(scenario: Scenario, outcome: Outcome, fault: str) -> None:
    assert fault in faults(outcome, HONEST, scenario)


def test_a_central_study_that_should_fail_must_fail_at_its_deadline_for_the_right_reason() -> None:
    assert faults(HONEST, HONEST, LOST) != []
    assert "before the deadline" in str(faults(replace(FAILED, ended_after=19.9), HONEST, LOST))
    assert faults(replace(FAILED, failure="a defect"), HONEST, LOST) != []


REFUSED = nets.NotPermittedError("ip netns add: mount --make-shared failed: Operation not permitted")


def test_a_machine_without_namespaces_fails_and_says_so() -> None:
    with mock.patch.object(nets, "sh", side_effect=REFUSED):
        line = networks.run(1.0)
    assert not line.passed
    assert "Operation not permitted" in line.detail


def test_what_a_machine_lacks_is_said_by_name_before_any_check_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--only", "networks"], []):
        monkeypatch.setattr("sys.argv", ["torture", *words])
        with (
            mock.patch.object(shutil, "which", lambda name: None if name == "nft" else f"/bin/{name}"),
            mock.patch.object(importlib, "import_module", side_effect=AssertionError("a check began")),
        ):
            assert torture.main() == torture.UNFIT
        message = capsys.readouterr().err
        assert "networks needs the program nft; on Debian and Ubuntu: sudo apt install nftables" in message
        assert "not let us make" not in message
    with mock.patch.object(shutil, "which", return_value=None):
        assert preflight.lacking(["calls", "messages"]) == []

"""The judge of bad networks finds each planted fault, and a machine without namespaces never passes."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from dataclasses import replace
from unittest import mock

import pytest

from tests.torture import __main__ as torture
from tests.torture import preflight
from tests.torture.networks import nets, networks
from tests.torture.networks.networks import FAR, SITES, Outcome, faults

PRICES = {0: 10, 1: 20}
HONEST = Outcome(
    state="released",
    failure="",
    ended_after=1.0,
    releases={0: "a", 1: "b"},
    prices=PRICES,
    present=dict.fromkeys(PRICES, SITES),
    charged=dict.fromkeys(("", *SITES), PRICES),
    disturbed=3,
)
FAILED = replace(
    HONEST, state="failed", failure=f"{FAR}: did not answer", ended_after=11.0,
    releases={0: "a"}, prices={0: 10},
)  # fmt: skip


def charged(who: str, prices: Mapping[int, int]) -> Outcome:
    """The honest outcome, but for the charges of one payer."""
    return replace(HONEST, charged={**HONEST.charged, who: prices})


def test_honest_outcomes_pass() -> None:
    assert faults(HONEST, HONEST) == []
    assert faults(FAILED, HONEST, fails=True) == []


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (charged("", {0: 10}), "round 1 is not charged in full by the coordinator"),
        (charged("", {0: 10, 1: 19}), "round 1 is not charged in full by the coordinator"),
        (charged(FAR, {1: 20}), f"round 0 is not charged in full by {FAR}"),
        (replace(HONEST, releases={0: "a", 1: "x"}), "another result than undisturbed"),
        (replace(HONEST, releases={0: "a"}), "fewer rounds than undisturbed"),
        (replace(HONEST, disturbed=0), "nothing was disturbed"),
        (replace(HONEST, state="running for ever"), "running for ever: "),
        (FAILED, f"failed: {FAR}: did not answer"),
    ],
)
def test_a_planted_fault_is_found(outcome: Outcome, fault: str) -> None:
    assert fault in faults(outcome, HONEST)


def test_a_study_that_should_fail_must_fail_at_its_deadline_for_the_right_reason() -> None:
    assert faults(HONEST, HONEST, fails=True) != []
    assert "before the deadline" in str(faults(replace(FAILED, ended_after=9.9), HONEST, fails=True))
    assert faults(replace(FAILED, failure="a defect"), HONEST, fails=True) != []
    assert faults(replace(FAILED, releases={0: "x"}), HONEST, fails=True) == [
        "another result than undisturbed"
    ]


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
        said = capsys.readouterr().err
        assert "networks needs the program nft; on Debian and Ubuntu: sudo apt install nftables" in said
        assert "not let us make" not in said
    with mock.patch.object(shutil, "which", return_value=None):
        assert preflight.lacking(["calls", "messages"]) == []


def test_namespaces_that_are_not_permitted_are_told_with_the_kernels_words() -> None:
    with (
        mock.patch.object(shutil, "which", lambda name: f"/bin/{name}"),
        mock.patch.object(nets, "sh", side_effect=REFUSED),
    ):
        (sentence,) = preflight.lacking(["networks"])
    assert "Operation not permitted" in sentence


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_few_bad_networks() -> None:
    line = networks.run(0.1)
    assert line.passed, str(line)

"""The judge of bad networks finds each planted fault, and a machine without namespaces never passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from unittest import mock

import pytest

from tests.torture import nets, networks
from tests.torture.networks import FAR, SITES, Outcome, faults

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


def test_a_machine_without_namespaces_fails_and_says_so() -> None:
    with mock.patch.object(nets, "sh", side_effect=nets.NotPermittedError("ip netns add: not permitted")):
        line = networks.run(1.0)
    assert not line.passed
    assert "not permitted" in line.detail


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_few_bad_networks() -> None:
    line = networks.run(0.1)
    assert line.passed, str(line)

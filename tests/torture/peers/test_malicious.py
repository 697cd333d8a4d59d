"""Every attack on a daemon in this process, and that an attack which succeeds is seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.rounds import SignedRound
from eigenveil_client.site.daemon import decisions
from eigenveil_client.site.daemon.round_checks import SessionReplica
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.state.outgoing import AnsweredRounds
from tests.client.site.support import Stage, a_stage
from tests.torture.peers.malicious import ATTACKS, Attack, Outcome, assault, verdict

BY_NAME = {attack.name: attack for attack in ATTACKS}


@asynccontextmanager
async def here(stage: Stage, log: Path) -> AsyncIterator[None]:
    """The daemon in this process, with its log in a file."""
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


def outcome(folder: Path, attack: Attack) -> Outcome:
    return asyncio.run(assault(a_stage(folder, approval=attack.approval), attack, here, folder / "log"))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_is_refused_and_logged_and_nothing_is_sent(attack: Attack, tmp_path: Path) -> None:
    assert outcome(tmp_path, attack).faults == []


@pytest.mark.parametrize(
    ("name", "owner", "check"),
    [
        ("presence of one exact record", SessionReplica, "expect"),
        ("one micro-rho less", SessionReplica, "expect"),
        ("round out of order", SessionReplica, "expect"),
        ("a release that a stranger signed", SessionReplica, "_verify"),
        ("a ledger that shrank", SessionReplica, "_check_ledger"),
        ("cohort that probes the site", Policy, "require"),
        ("wrong plan signature", decisions, "verify_plan"),
    ],
)
def test_a_site_without_that_check_is_found(
    name: str, owner: object, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault for each kind: the check is gone, and the verdict says so."""
    if check == "verify_plan":
        monkeypatch.setattr(owner, check, lambda plan_json, *_: plan_from_json(plan_json))
    elif check == "_verify":
        believed = SignedRound(signed_json=b"", signature=b"")
        read = lambda _, signed: replace(believed, signed_json=signed.signed_json).read()  # noqa: E731
        monkeypatch.setattr(owner, check, read)
    else:
        monkeypatch.setattr(owner, check, lambda *_: None)
    if check == "expect":
        monkeypatch.setattr(
            AnsweredRounds, "check_order", lambda *_: None
        )  # the second lock on the same door
    found = outcome(tmp_path, BY_NAME[name])
    assert found.faults
    assert not verdict([found]).passed

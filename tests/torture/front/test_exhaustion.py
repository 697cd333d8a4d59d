"""The attacks on a real coordinator in small, and that a coordinator without a limit is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.torture.front import exhaustion
from tests.torture.front.besieged import Watch
from tests.torture.front.exhaustion import QUICK, Attack, besiege
from tests.torture.front.http2 import verdict
from tests.torture.line import Line

UNLIMITED = ("tests.torture.front.unlimited",)


@pytest.fixture(autouse=True)
def _any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast an honest caller is answered is measured by the torture, not on a machine that is busy."""
    monkeypatch.setattr("tests.torture.front.besieged.ANSWER_SECONDS", float("inf"))


def tried(folder: Path, attacks: Mapping[str, Attack], *command: str) -> Line:
    return asyncio.run(besiege(folder, attacks, 0.05, command or ("eigenveil_server.cli",)))


@pytest.mark.slow
def test_every_limit_holds(tmp_path: Path) -> None:
    line = tried(tmp_path, QUICK)
    assert line.passed, line.detail


def test_a_coordinator_that_unpacks_what_it_is_sent_is_found_out(tmp_path: Path) -> None:
    limit = "grpc.compression_enabled_algorithms_bitset"
    planted = tried(tmp_path, {"compression": exhaustion.compression}, *UNLIMITED, limit)
    assert not planted.passed
    assert "NOT HELD" in planted.detail


@pytest.mark.slow
@pytest.mark.parametrize("name", ["idle sockets", "slow headers"])
def test_whoever_only_sits_there_is_let_go(tmp_path: Path, name: str) -> None:
    line = tried(tmp_path, {name: exhaustion.ATTACKS[name]})
    assert line.passed, line.detail


@pytest.mark.slow
def test_a_coordinator_that_waits_for_handshakes_is_found_out(tmp_path: Path) -> None:
    attack = {"idle sockets": exhaustion.idle_sockets}
    planted = tried(tmp_path, attack, *UNLIMITED, "handshakes")
    assert "still there" in planted.detail


def test_what_the_watch_saw_decides() -> None:
    quiet = Watch(calls=3, slowest=0.1, before=100, most=200)
    assert verdict(10, 10, quiet, "").passed
    assert not verdict(10, 10, quiet, "it ended").passed
    grown = Watch(calls=3, slowest=0.1, before=0, most=exhaustion.MOST_GROWTH)
    assert not verdict(10, 10, grown, "").passed
    assert not verdict(10, 10, Watch(calls=3, failures=1), "").passed
    assert not verdict(10, 10, Watch(), "").passed, "nobody asked"

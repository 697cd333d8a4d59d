"""Attacks on a real coordinator at a small scale; a coordinator without a limit, and each fault, is found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from eigenveil_server.config import Config
from tests.torture.front import declined_floods, denial, exhaustion, http2
from tests.torture.front.besieged import Watch, besieged
from tests.torture.front.declined_floods import LOG_GROWTH, SITE_GROWTH, Disks
from tests.torture.front.denial import Honest
from tests.torture.front.exhaustion import QUICK, Attack, besiege
from tests.torture.front.frames import (
    HELLO,
    PING,
    PREFACE,
    frame,
    head,
    integer,
    message,
    parse,
    settings,
    status,
)
from tests.torture.front.http2 import verdict
from tests.torture.front.sequences import GOOD, SEQUENCES, Sequence
from tests.torture.line import Line

UNLIMITED = ("tests.torture.front.unlimited",)
CONFIG = Config(federation="f", state=Path("c"))
BEFORE = Disks(site=100, coordinator=100, studies=0)
CALM = Honest(waits=[0.01] * 200, studies=[1.0, 1.1, 1.4])


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
    weak = Watch(calls=3, slowest=0.1, before=100, most=200)
    assert verdict(10, 10, weak, "").passed
    assert not verdict(10, 10, weak, "it ended").passed
    grown = Watch(calls=3, slowest=0.1, before=0, most=exhaustion.MOST_GROWTH)
    assert not verdict(10, 10, grown, "").passed
    assert not verdict(10, 10, Watch(calls=3, failures=1), "").passed
    assert not verdict(10, 10, Watch(), "").passed, "nobody asked"


def after(site: int = 0, coordinator: int = 0, studies: int = 9) -> Disks:
    return Disks(site=100 + site, coordinator=100 + coordinator, studies=studies)


MOST_BYTES = int(CONFIG.max_submitted_mib_per_day * 2**20) + LOG_GROWTH
MOST_STUDIES = CONFIG.max_submissions_per_day


@pytest.mark.parametrize(
    ("disks", "fault"),
    [
        (after(SITE_GROWTH, MOST_BYTES, MOST_STUDIES), ""),
        (after(site=SITE_GROWTH + 1), "the site's disk"),
        (after(coordinator=MOST_BYTES + 1), "the coordinator's disk"),
        (after(studies=MOST_STUDIES + 1), "studies of one analyst"),
        (after(studies=0), "ever stored"),
    ],
)
def test_flood_passes_only_if_both_disks_stay_within_their_limits(disks: Disks, fault: str) -> None:
    found = declined_floods.faults(BEFORE, disks, CONFIG)
    assert fault in found[0] if fault else found == []


@pytest.mark.parametrize(
    ("honest", "fault"),
    [
        (CALM, ""),
        (Honest(CALM.waits, 1, CALM.studies), "1 of 200 honest calls lost"),
        (Honest([*CALM.waits, 2.0, 2.0, 2.0], 0, CALM.studies), "p99"),
        (Honest(CALM.waits, 0, [1.0, 1.6, 1.7]), "undisturbed"),
        (Honest(CALM.waits, 0, [1.0, 1.0]), "too long"),
        (Honest(), "p99 inf"),
    ],
)
def test_denial_passes_only_if_no_honest_caller_is_lost_or_slowed(honest: Honest, fault: str) -> None:
    found = denial.faults("x", honest, undisturbed=1.0)
    assert fault in found[0] if fault else found == []


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_coordinator_without_places_is_found_out(tmp_path: Path) -> None:
    line = await denial.deny(tmp_path, ("rapid resets",), 0.25, (*UNLIMITED, "places"))
    assert not line.passed, str(line)


@pytest.mark.slow
async def test_coordinator_survives_150_malformed_connections(tmp_path: Path) -> None:
    async with besieged(tmp_path, http2.UNLIMITED) as siege:
        async with siege.watched() as watch:
            given = (siege.port, siege.attacker, siege.folder, 150, 1)
            ended = await asyncio.to_thread(http2.attack, *given)
        assert (siege.fate, watch.failures) == ("", 0)
        assert watch.calls > 0 < ended


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_same_seed_gives_the_same_bytes(sequence: Sequence) -> None:
    text = [sequence(random.Random(seed)) for seed in range(20)]
    assert text == [sequence(random.Random(seed)) for seed in range(20)]
    assert len(set(text)) > 1
    assert text.count(GOOD) < 4, "now and then the changed bytes are the old ones"


def test_frames_are_what_the_standard_says() -> None:
    assert frame(PING, 1, 0, b"12345678") == b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"
    assert integer(1337, 5) == b"\x1f\x9a\x0a", "the example of RFC 7541, C.1.2"
    assert message(b"ab", 1) == b"\x01\x00\x00\x00\x02ab"
    assert parse(HELLO[len(PREFACE) :] + settings((3, 100))) == [(4, 0, 0, b""), (4, 0, 0, b"\0\x03\0\0\0d")]
    assert status(head("/x", ("grpc-status", "12"))) == "12"

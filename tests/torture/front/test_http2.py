"""Malformed HTTP/2 in small, against a real coordinator."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.torture.front.besieged import besieged
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
from tests.torture.front.http2 import UNLIMITED, attack
from tests.torture.front.sequences import GOOD, SEQUENCES, Sequence


@pytest.mark.slow
async def test_a_coordinator_survives_a_hundred_and_fifty(tmp_path: Path) -> None:
    async with besieged(tmp_path, UNLIMITED) as siege:
        async with siege.watched() as watch:
            given = (siege.port, siege.attacker, siege.folder, 150, 1)
            ended = await asyncio.to_thread(attack, *given)
        assert siege.fate == ""
        assert watch.calls > 0
        assert watch.failures == 0
        assert ended > 0


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_the_same_seed_says_the_same_and_hardly_ever_a_good_call(sequence: Sequence) -> None:
    said = [sequence(random.Random(seed)) for seed in range(20)]
    assert said == [sequence(random.Random(seed)) for seed in range(20)]
    assert len(set(said)) > 1
    assert said.count(GOOD) < 4, "now and then the changed bytes are the old ones"


def test_frames_are_what_the_standard_says() -> None:
    assert frame(PING, 1, 0, b"12345678") == b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"
    assert integer(1337, 5) == b"\x1f\x9a\x0a", "the example of RFC 7541, C.1.2"
    assert message(b"ab", 1) == b"\x01\x00\x00\x00\x02ab"
    assert parse(HELLO[len(PREFACE) :] + settings((3, 100))) == [(4, 0, 0, b""), (4, 0, 0, b"\0\x03\0\0\0d")]
    assert status(head("/x", ("grpc-status", "12"))) == "12"

"""The check of mutated messages in small, and that it sees what it is there to see."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.fuzz.hunt import Kind, Tally, hunt
from tests.fuzz.mutations import mutate_message
from tests.fuzz.site import feed_query, query_seeds
from tests.torture.peers.messages import most_growth, to_coordinator, to_site, verdict

METHODS = {name for service in pb.DESCRIPTOR.services_by_name.values() for name in service.methods_by_name}


@pytest.mark.slow
@pytest.mark.parametrize("half", [to_coordinator, to_site])
def test_a_mutated_message_is_accepted_or_refused_by_a_declared_error(half: object, tmp_path: Path) -> None:
    assert callable(half)
    tally: Tally = asyncio.run(half(tmp_path / "fuzz", 1500, seed=1))
    # Of so few messages the first tenth does not load all that is loaded once: growth is for whole runs.
    line = verdict([replace(tally, growth=0)])
    assert line.passed, line.detail
    assert tally.inputs == 1500
    if half is to_coordinator:
        assert set(tally.outcomes) == METHODS


def hunted(feed: Callable[[bytes], Awaitable[None]], folder: Path) -> Tally:
    kind = Kind(seeds=query_seeds(), mutate=mutate_message, feed=feed)
    return asyncio.run(hunt({"Query": kind}, 400, seed=1, found=folder))


async def careless(data: bytes) -> None:
    """A planted decoder: an unknown kind of question is looked up and not found."""
    await feed_query(data)
    {"gram": 1}[str(pb.Query.FromString(data).WhichOneof("kind"))]


def test_a_decoder_that_lets_a_key_error_out_is_caught_and_its_message_kept(tmp_path: Path) -> None:
    tally = hunted(careless, tmp_path)
    assert tally.finds
    assert all(seen.startswith("KeyError") for seen in tally.finds.values())
    assert {file.name for file in tmp_path.iterdir()} == set(tally.finds)
    assert not verdict([tally]).passed
    assert hunted(careless, tmp_path).finds == tally.finds, "the same seed finds the same"


def test_a_decoder_that_keeps_something_of_each_message_is_caught(tmp_path: Path) -> None:
    stored: list[bytes] = []

    async def leaking(data: bytes) -> None:
        await feed_query(data)
        stored.append(b"x" * 100_000)

    tally = hunted(leaking, tmp_path)
    assert len(stored) > 100
    assert tally.growth >= most_growth(tally.inputs)
    assert not verdict([tally]).passed


def test_growth_and_a_run_in_which_nothing_was_accepted_do_not_pass() -> None:
    good = {"Query": Counter({"accepted": 1, "undecodable": 1})}
    assert verdict([Tally(outcomes=good)]).passed
    assert not verdict([Tally(outcomes=good, growth=most_growth(2))]).passed
    assert not verdict([Tally(outcomes={"Query": Counter({"undecodable": 2})})]).passed

"""A list of studies costs what it costs: sixty calls at once are two looks, and a part is bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.identity import Identity, Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc import responses
from eigenveil_server.rpc.responses import StudyList
from tests.server.rig import Client, Rig, made, serving, study_toml


async def test_calls_at_once_share_a_look_that_begins_after_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[StudyList] = []
    go, part = asyncio.Event(), StudyList._part

    async def stored(self: StudyList, caller: Identity, after: str) -> pb.ListStudiesResponse:
        looks.append(self)
        await go.wait()
        return await part(self, caller, after)

    monkeypatch.setattr(StudyList, "_part", stored)
    async with serving(made(tmp_path / "c")) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        await ada.submit(study_toml(name="first"), "first")
        calls = [asyncio.ensure_future(listed(ada)) for _ in range(60)]
        while not looks or max(turn.waiting for turn in looks[0]._queues.values()) < 60:
            await asyncio.sleep(0.005)
        await ada.submit(study_toml(name="second"), "second")
        go.set()
        answers = await asyncio.gather(*calls)
        assert len(looks) == 2
        assert set(map(tuple, answers)) == {("first", "second")}
        assert looks[0]._queues == {}, "nothing is held when nobody waits"


async def listed(client: Client) -> list[str]:
    found = await client.stub.ListStudies(pb.ListStudiesRequest())
    return [row.name for row in found.studies]


async def test_after_a_burst_a_caller_has_so_many_looks_a_second_and_others_theirs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the time but the looks are counted: with no rate nothing comes after the burst."""
    monkeypatch.setattr(responses, "BURST", 2.5)
    monkeypatch.setattr(responses, "RATE", 1e-9)
    monkeypatch.setattr(responses, "LEAST_PAUSE", 3600.0)
    eve, ada = [await rig.client(Role.ANALYST, name) for name in ("eve", "ada")]
    for _ in range(3):
        assert await listed(eve) == []
    more = asyncio.ensure_future(listed(eve))
    for _ in range(3):
        assert await listed(ada) == []
    assert not more.done()
    more.cancel()


async def test_calls_that_are_taken_back_leave_nothing_and_the_next_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each asks behind a study of its own invention, while another call of the caller waits, or none does."""
    go, at_once = asyncio.Event(), [0, 0]

    async def stored(self: StudyList, caller: Identity, after: str) -> pb.ListStudiesResponse:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await go.wait()
        at_once[0] -= 1
        return pb.ListStudiesResponse()

    monkeypatch.setattr(StudyList, "_part", stored)
    monkeypatch.setattr(responses, "BURST", 3.0)
    monkeypatch.setattr(responses, "RATE", 1e-9)
    monkeypatch.setattr(responses, "LEAST_PAUSE", 3600.0)
    studies = StudyList(mock.Mock(), mock.Mock(), 1e-6)
    eve = Identity(federation="test-fed", role=Role.ANALYST, name="eve")
    before = len(asyncio.all_tasks())

    async def cancelled_early(names: range) -> None:
        calls = [asyncio.ensure_future(studies.part(eve, f"none-{name}")) for name in names]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.01)

    first = asyncio.ensure_future(studies.part(eve, ""))
    await cancelled_early(range(500))
    assert len(asyncio.all_tasks()) == before + 2, "the call that waits, and its look"
    first.cancel()
    await cancelled_early(range(500, 501))
    second = asyncio.ensure_future(studies.part(eve, ""))
    await asyncio.sleep(0.01)
    go.set()
    await second
    assert at_once == [0, 1], "one part at a time"
    await cancelled_early(range(501, 1000))  # the first of them has the last look there is
    await cancelled_early(range(1000, 1500))  # and of these the first waits for the allowance
    assert len(asyncio.all_tasks()) == before
    assert studies._queues == {}

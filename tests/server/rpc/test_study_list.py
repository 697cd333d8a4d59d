"""A list of studies costs what it costs: sixty calls at once are two looks, and a part is bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eigenveil.identity import Identity, Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc import study_list
from eigenveil_server.rpc.study_list import StudyList
from tests.server.rig import Client, in_loop, made, serving, study_toml


@in_loop
async def test_calls_at_once_share_a_look_that_begins_after_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[StudyList] = []
    go, part = asyncio.Event(), StudyList._part

    async def held(self: StudyList, caller: Identity, after: str) -> pb.ListStudiesResponse:
        looks.append(self)
        await go.wait()
        return await part(self, caller, after)

    monkeypatch.setattr(StudyList, "_part", held)
    async with serving(made(tmp_path / "c")) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        await ada.submit(study_toml(name="first"), "first")
        calls = [asyncio.ensure_future(listed(ada)) for _ in range(60)]
        while not looks or max(turn.waiting for turn in looks[0]._turns.values()) < 60:
            await asyncio.sleep(0.005)
        await ada.submit(study_toml(name="second"), "second")
        go.set()
        answers = await asyncio.gather(*calls)
        assert len(looks) == 2
        assert set(map(tuple, answers)) == {("first", "second")}
        assert looks[0]._turns == {}, "nothing is held when nobody waits"


async def listed(client: Client) -> list[str]:
    found = await client.stub.ListStudies(pb.ListStudiesRequest())
    return [row.name for row in found.studies]


@in_loop
async def test_a_part_is_bounded_and_the_parts_make_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_list, "STUDIES_AT_ONCE", 2)
    async with serving(made(tmp_path / "c")) as rig:
        await rig.sites()
        ada = await rig.client(Role.ANALYST, "ada")
        for number in range(5):
            await ada.submit(study_toml(name=f"s{number}", epsilon=0.2), str(number))
        found: list[str] = []
        after, more = b"", True
        while more:
            part = await ada.stub.ListStudies(pb.ListStudiesRequest(after=after))
            assert len(part.studies) <= 2
            found += [row.name for row in part.studies]
            after, more = part.studies[-1].plan_digest, part.more
        assert found == [f"s{number}" for number in range(5)]


@in_loop
async def test_after_a_burst_a_caller_has_so_many_looks_a_second_and_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the time but the looks are counted: with no rate nothing comes after the burst."""
    monkeypatch.setattr(study_list, "BURST", 2.5)
    monkeypatch.setattr(study_list, "RATE", 1e-9)
    monkeypatch.setattr(study_list, "LEAST_PAUSE", 3600.0)
    async with serving(made(tmp_path / "c")) as rig:
        eve, ada = [await rig.client(Role.ANALYST, name) for name in ("eve", "ada")]
        for _ in range(3):
            assert await listed(eve) == []
        more = asyncio.ensure_future(listed(eve))
        for _ in range(3):
            assert await listed(ada) == []
        assert not more.done()
        more.cancel()

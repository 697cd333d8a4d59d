"""A coordinator whose wide releases are followed in a process of their own."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from eigenveil.identity import Role
from eigenveil.reporting.verify import load_release
from eigenveil_common.concurrency import start_isolated
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds import study_session
from tests.server.rig import Client, Rig, answering, made, serving, study_toml


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_session, "WIDE_RELEASE_NUMBERS", 9)  # the matrix of 4 columns has 10 numbers


async def test_it_is_stopped_beside_its_follower_and_goes_on_from_what_is_stored(tmp_path: Path) -> None:
    config, reached = made(tmp_path / "c"), asyncio.Event()
    try:
        async with serving(config) as rig:
            ada = await rig.client(Role.ANALYST, "ada")
            arm("bundle-built", reached.set)
            async with answering(await rig.sites()):
                digest = await ada.submit(study_toml())
                await asyncio.wait_for(reached.wait(), 60)
    finally:
        disarm()
    async with serving(config) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
        release = load_release(await ada.release(digest))
    assert len(release.document["rounds"]) == 7
    assert len(release.result.components) == 2


async def test_a_follower_that_is_ended_ends_the_study_and_its_release_is_stored_and_charged(
    rig: Rig, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(module: str) -> subprocess.Popen[bytes]:
        process = start_isolated(module)
        process.kill()
        return process

    monkeypatch.setattr(study_session, "start_isolated", broken)

    async with answering(await rig.sites()):
        digest = await ada.submit(study_toml())
        last = (await ada.events(digest))[-1]
    assert last.state == pb.STUDY_STATE_FAILED
    assert "possibly for lack of memory; the release is stored" in last.failure
    releases = [one.release for one in rig.repository.studies.sealed_rounds(digest)]
    assert releases[-2].values.size <= study_session.WIDE_RELEASE_NUMBERS < releases[-1].values.size
    assert last.spent_micro_rho == sum(one.micro_rho for one in releases)

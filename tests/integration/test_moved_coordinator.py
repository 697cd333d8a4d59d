"""A coordinator moves to another address while a study waits for a person: its sites find it there, and
nobody enrols again [R19]."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.identity import Role
from eigenveil_client.connection import channel
from eigenveil_client.connection.doctor import identity_and_network
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.proxy import ProxyRule
from eigenveil_client.demo.federation import free_ports
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.daemon import service as site_daemon
from eigenveil_client.site.policy import Approval
from eigenveil_common.config import load
from eigenveil_common.doctor import Level
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from tests.client.site.support import until
from tests.integration.running_site import enrolled, running_site
from tests.integration.test_consent import person, words_are
from tests.server.process import command
from tests.server.rig import made, serving, study_toml


def ca(folder: Path, *words: str) -> dict[str, list[str]]:
    code, out, err = command("ca", *words, "--config", str(folder / "coordinator.toml"), "--json")
    assert code == 0, err
    found: dict[str, list[str]] = json.loads(out)
    return found


@pytest.mark.slow
async def test_a_coordinator_moves_in_the_middle_of_a_queue(tmp_path: Path) -> None:
    old, out, new = tmp_path / "old", tmp_path / "backup", tmp_path / "new"
    config = made(old, long_poll_seconds=0.2, start_minutes=0.0)
    port, enrol_port = free_ports()
    with (
        mock.patch.object(connection, "CONNECTION_SECONDS", 0.5),
        mock.patch.object(site_daemon, "STABLE_SECONDS", 0.1),
        mock.patch.object(channel, "MAX_BACKOFF_SECONDS", 0.5),
    ):
        async with AsyncExitStack() as before:
            rig = await before.enter_async_context(serving(config))
            identity = (await enrolled(rig, tmp_path / "anna")).folder
            async with running_site(identity, approval=Approval.MANUAL) as daemon:
                ada = await rig.client(Role.ANALYST, "ada")
                waiting = await ada.submit(study_toml(sites=("anna",)), "waits", agreed=False)
                await words_are(ada, waiting, anna="waiting for a person")
                here, there = f"127.0.0.1:{rig.ports.port}", f"127.0.0.1:{port}"
                ca(old, "addresses", here, there)
                await until(lambda: "site/anna" not in ca(old, "show")["without_current_list"])
                await until(lambda: load_identity(identity).addresses == (here, there))
                await before.aclose()
                for words in (("backup", "--config", str(old / "coordinator.toml"), "--out", str(out)),
                              ("restore", "--from", str(out), "--dir", str(new))):  # fmt: skip
                    code, _, problem = command(*words, "--json")
                    assert code == 0, problem
                shutil.rmtree(old)
                moved = replace(
                    load(new / "coordinator.toml", Config), port=port, enrol_port=enrol_port,
                    long_poll_seconds=0.2, start_minutes=0.0,
                )  # fmt: skip
                async with serving(moved) as other:
                    await asyncio.to_thread(person, tmp_path, "anna", consent.approve)
                    eve = await other.client(Role.ANALYST, "eve")
                    assert (await eve.events(waiting))[-1].state == pb.STUDY_STATE_RELEASED
                    ca(new, "addresses", there, "--anyway")
                    joined = here  # the address of the join file stays the last one to try
                    await until(lambda: load_identity(identity).addresses == (there, joined))
                    await until(lambda: daemon.contact.connected)
                    checks = await asyncio.to_thread(identity_and_network, identity, ProxyRule)
                    assert [one.text for one in checks if one.level is Level.FAIL] == []

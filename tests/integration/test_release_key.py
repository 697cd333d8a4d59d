"""The release key is replaced in the middle of a queue of studies: nobody enrols again, and what was signed
before stays verifiable [R34]."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil.protocol.plan import verify_plan
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.daemon import service as site_daemon
from eigenveil_client.site.policy import Approval
from eigenveil_common.files import path_exists
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.release_keys import prepare, status, switch
from tests.client.site.support import killed_at, until
from tests.integration.running_site import enrolled, running_site
from tests.integration.test_consent import person, words_are
from tests.server.rig import Rig, made, serving, study_toml

STUDY = study_toml(sites=("anna",), epsilon=0.3)


@pytest.fixture(autouse=True)
def _short_connections() -> Iterator[None]:
    """Sites hear of a new list when they connect."""
    with (
        mock.patch.object(connection, "CONNECTION_SECONDS", 0.5),
        mock.patch.object(site_daemon, "STABLE_SECONDS", 0.1),
    ):
        yield


def keys(config: Config) -> tuple[bytes, ...]:
    return Authorities(config.files).current_list.known_keys


async def released(rig: Rig, submission: str) -> bytes:
    """The release of a study that is submitted now, by an analyst who is denied afterwards."""
    ada = await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(STUDY, submission)
    assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
    data = await ada.release(digest)
    rig.daemon.registry.deny(Role.ANALYST, "ada")
    rig.token(Role.ANALYST, "ada", lift_denial=True)
    return data


async def test_a_new_release_key_in_a_queue_of_studies(tmp_path: Path) -> None:
    config = made(tmp_path / "c", long_poll_seconds=0.2, start_minutes=0.0)
    identity = tmp_path / "anna"
    async with AsyncExitStack() as stack:
        async with serving(config) as rig:
            config = replace(config, port=rig.ports.port, enrol_port=rig.ports.enrol_port)
            await enrolled(rig, identity)
            await stack.enter_async_context(running_site(identity, approval=Approval.MANUAL))
            ada = await rig.client(Role.ANALYST, "ada")
            waiting = await ada.submit(STUDY, "waiting", agreed=False)
            await words_are(ada, waiting, anna="waiting for a person")
            assert prepare(config)
            with pytest.raises(RequestError, match="announced already") as problem:
                prepare(config)
            assert problem.value.code is Code.CONFLICT
            await until(lambda: "site/anna" not in status(config)["without_current_list"])
            with pytest.raises(RequestError) as problem:
                switch(config, anyway=False)
            assert problem.value.code is Code.CONFLICT, "the coordinator is serving"
        old, new = keys(config)
        assert switch(config, anyway=True)
        assert not path_exists(config.files.next_release_key)
        assert keys(config) == (old, new)
        async with serving(config) as rig:
            for row in rig.rows("SELECT plan_json, signature FROM studies"):
                verify_plan(row["plan_json"], row["signature"], (new,))
            await asyncio.to_thread(person, tmp_path, "anna", consent.approve)
            ada = await rig.client(Role.ANALYST, "eve")
            events = [event.state for event in await ada.events(waiting)]
            assert events[-1] == pb.STUDY_STATE_RELEASED
            release = load_release(await ada.release(waiting))
            assert release.public_key == new
            verify_release(release, keys(config))
            await until(lambda: load_identity(identity).release_keys.known == (old, new))


async def test_releases_of_both_keys_verify_with_the_list_and_an_earlier_key_signs_nothing_new(
    tmp_path: Path,
) -> None:
    config = made(tmp_path / "c", long_poll_seconds=0.2)
    identity = tmp_path / "anna"
    async with serving(config) as rig:
        config = replace(config, port=rig.ports.port, enrol_port=rig.ports.enrol_port)
        await enrolled(rig, identity)
        async with running_site(identity):
            first = await released(rig, "first")
            prepare(config)
            await until(lambda: not status(config)["without_current_list"])
    switch(config, anyway=True)
    async with serving(config) as rig, running_site(identity):
        second = await released(rig, "second")
    before, after = load_release(first), load_release(second)
    assert (before.public_key, after.public_key) == keys(config)
    for release in (before, after):
        verify_release(release, keys(config))
    assert load_identity(identity).release_keys.accepted == (after.public_key,)


@pytest.mark.parametrize(
    ("step", "listed"),
    [
        ("release-key-made", False), ("authorities-listed", True), ("release-key-listed", True),
        ("release-key-signed-again", True), ("release-key-replaced", True),
    ],
)  # fmt: skip
async def test_a_change_that_crashed_is_completed_by_the_next_start(
    tmp_path: Path, step: str, listed: bool
) -> None:
    config = made(tmp_path / "c")
    if step == "release-key-made":
        with killed_at(step):
            prepare(config)
        assert len(keys(config)) == 1, "nothing was announced"
    prepare(config)
    old, new = keys(config)
    if listed:
        with killed_at(step):
            switch(config, anyway=True)
    async with serving(config) as rig:
        signs = rig.daemon.runtime.keys.release_public
        assert signs == (new if listed else old)
    assert status(config)["release_keys"][-1]["use"] == ("signs" if listed else "next")

"""Two daemons with one identity: one is served, the other is refused, and both ends say so [R18]."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.errors import Code, PeerError
from eigenveil.identity import Role
from eigenveil_client.connection.identity import StoredIdentity, load_identity, open_channel
from eigenveil_client.connection.session_start import Generation, greet_coordinator
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from eigenveil_server.rpc import sites
from tests.client.site.support import until
from tests.integration.running_site import enrolled, listening, running_site
from tests.server.rig import made, refusal, serving
from tests.support import a_hello


def copied(folder: Path, name: str) -> Path:
    """The whole folder once more, as from a backup or on a copied machine."""
    return Path(shutil.copytree(folder, folder.with_name(name)))


async def greet(stored: StoredIdentity) -> None:
    async with await open_channel(stored) as channel:
        await greet_coordinator(rpc.CoordinatorStub(channel), "test", stored, Generation(stored.folder))


async def test_a_copy_made_while_the_daemon_serves_is_refused_and_the_daemon_goes_on(tmp_path: Path) -> None:
    config = made(tmp_path / "c", long_poll_seconds=20.0)
    async with listening() as lines, serving(config) as rig:
        await enrolled(rig, tmp_path / "anna")
        async with running_site(tmp_path / "anna") as original:
            await until(lambda: original.contact.connected)
            clone = copied(tmp_path / "anna", "clone")
            async with running_site(clone) as second:
                await until(lambda: lines.count("second-daemon"))
                await until(lambda: second.contact.disconnects[Code.NOT_READY.value])
                assert second.contact.connections == 0
                assert original.contact.connections == 1
                assert not original.contact.disconnects
        assert any("code=not-ready" in line for line in lines.seen if line.startswith("disconnected"))


async def test_the_copy_that_falls_behind_is_refused_until_it_has_a_new_token(tmp_path: Path) -> None:
    async with listening() as lines, serving(made(tmp_path / "c")) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        await greet(stored)
        clone = load_identity(copied(tmp_path / "anna", "clone"))
        await greet(clone)
        with pytest.raises(PeerError, match="a copy of this identity") as refused:
            await greet(stored)
        assert refused.value.code is Code.IDENTITY
        assert lines.count("generation-behind") == 1
        again = await enrolled(rig, tmp_path / "anna")
        await greet(again)
        await greet(again)
        with pytest.raises(PeerError, match="replaced by a later one"):
            await greet(clone)


async def test_a_daemon_that_restarts_or_lost_an_answer_is_let_in_at_once(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        for _ in range(3):
            await greet(stored)
        with mock.patch.object(Generation, "confirm"):  # the process ended before it read the answer
            await greet(stored)
        await greet(stored)
        async with running_site(tmp_path / "anna") as daemon:
            await until(lambda: daemon.contact.connected)
        async with running_site(tmp_path / "anna") as daemon:
            await until(lambda: daemon.contact.connected)
            assert not daemon.contact.disconnects


async def test_a_dead_connection_does_not_block_the_next_one(tmp_path: Path) -> None:
    """As after a power cut at the site, or a lost NAT entry: the coordinator still waits with an answer."""

    with mock.patch.object(sites, "PROBE_SECONDS", 0.3):
        async with serving(made(tmp_path / "c", long_poll_seconds=50.0)) as rig:
            stored = await enrolled(rig, tmp_path / "anna")
            async with await open_channel(stored) as dead:
                stub = rpc.CoordinatorStub(dead)
                await greet_coordinator(stub, "test", stored, Generation(stored.folder))
                waiting = asyncio.ensure_future(stub.NextWork(pb.NextWorkRequest()))
                await asyncio.sleep(0.2)
                await greet(stored)
                assert (await waiting).ByteSize() == 0
                assert (await refusal(stub.NextWork(pb.NextWorkRequest()))).code is Code.NOT_READY


async def test_a_coordinator_that_restarts_remembers_who_is_behind(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    async with serving(config) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        await greet(stored)
        copied(tmp_path / "anna", "clone")
        await greet(stored)
    async with serving(config) as rig:
        for name in ("anna", "clone"):
            path = tmp_path / name / "identity.json"
            path.write_text(path.read_text().replace(stored.coordinator, f"127.0.0.1:{rig.ports.port}"))
        await greet(load_identity(tmp_path / "anna"))
        with pytest.raises(PeerError, match="a copy of this identity"):
            await greet(load_identity(tmp_path / "clone"))


async def test_a_call_on_another_connection_than_the_daemons_is_refused(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        async with await open_channel(stored) as first, await open_channel(stored) as second:
            one, two = rpc.CoordinatorStub(first), rpc.CoordinatorStub(second)
            await greet_coordinator(one, "test", stored, Generation(stored.folder))
            for call in (two.NextWork(pb.NextWorkRequest()), two.Renew(pb.RenewRequest())):
                assert (await refusal(call)).code is Code.NOT_READY
            doctor = a_hello()
            await two.Hello(doctor)  # asks, and takes nothing over
            assert (await refusal(two.NextWork(pb.NextWorkRequest()))).code is Code.NOT_READY
            digest = pb.GetReleaseRequest(plan_digest=bytes(32))
            assert (await refusal(one.GetRelease(digest))).code is Code.NOT_FOUND
        bert = await rig.client(Role.SITE, "bert")
        odd = a_hello(next_generation=b"short")
        assert (await refusal(bert.stub.Hello(odd))).code is Code.PROTOCOL

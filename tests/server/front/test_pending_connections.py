"""Strangers: what they hold before their handshake, and who makes room for whom."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import time
from asyncio import sslproto
from pathlib import Path
from unittest import mock

import grpc
import pytest

from eigenveil.identity import Role
from eigenveil_server.front import pending_connections
from eigenveil_server.front.known_networks import KnownNetworks
from tests.server.rig import Rig, made, serving
from tests.support import a_hello
from tests.torture.front.besieged import client_hello

REQUEST = a_hello()


@pytest.mark.parametrize(
    ("header", "length"),
    [
        ("1603010200", 517),
        ("1603034000", 16_389),
        ("1603030001", 6),
        ("1603014001", 0),
        ("1603010000", 0),
        ("1503010002", 0),
        ("1602000010", 0),
        (b"GET /".hex(), 0),
    ],
)
def test_of_a_first_record_its_kind_and_length_count(header: str, length: int) -> None:
    assert pending_connections.record_bytes(bytes.fromhex(header)) == length


async def test_a_stranger_has_no_tls_before_its_first_record_is_whole_and_none_that_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_connections, "HANDSHAKE_MS", 600_000)
    hello = client_hello()

    def handshakes() -> int:
        return sum(isinstance(thing, sslproto.SSLProtocol) for thing in gc.get_objects())

    try:
        async with serving(made(tmp_path / "c")) as rig:
            where = ("127.0.0.1", rig.ports.port)
            here = rig.daemon._main_gateway
            with socket.create_connection(where) as slow, socket.create_connection(where):
                anna = await rig.client(Role.SITE, "anna")
                for first, last in ((0, 3), (3, 5), (5, len(hello) - 1)):
                    slow.sendall(hello[first:last])
                    await anna.stub.Hello(REQUEST)
                    assert (len(here._pending_connections), len(here._handshake_tasks)) == (2, 0)
                before = handshakes()
                slow.sendall(hello[-1:])
                while not here._handshakes._in_progress or handshakes() == before:
                    await asyncio.sleep(0.01)
                gc.disable()
                here._pending_connections.end(next(iter(here._handshakes._in_progress)))
                while here._handshake_tasks:
                    await asyncio.sleep(0.01)
                await anna.stub.Hello(REQUEST)
                assert handshakes() == before, "what failed waits for no collection of garbage"
                assert len(here._pending_connections) == 1
    finally:
        gc.enable()


async def test_a_stranger_that_is_no_client_of_tls_or_has_closed_is_let_go_at_once(rig: Rig) -> None:
    where = ("127.0.0.1", rig.ports.port)
    for message in (b"GET / HTTP/1.1\r\n", b"", client_hello()[:100]):
        with socket.create_connection(where) as one:
            one.sendall(message)
            if message[:1] != b"G":
                one.shutdown(socket.SHUT_WR)
            one.setblocking(False)
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
    async with asyncio.timeout(5):
        while len(rig.daemon._main_gateway._pending_connections):
            await asyncio.sleep(0.01)


async def test_a_handshake_that_idles_too_long_is_ended_and_none_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_connections, "HANDSHAKE_MS", 600)
    monkeypatch.setattr(pending_connections, "SWEEP_SECONDS", 0.05)

    async def until_closed(one: socket.socket) -> float:
        began = time.monotonic()
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
        return time.monotonic() - began

    here = pending_connections.PendingConnections(mock.Mock(), mock.Mock(), KnownNetworks(), most=4)
    where = ("127.0.0.1", await here.open("127.0.0.1", 0))
    with socket.create_connection(where) as first, socket.create_connection(where) as second:
        first.setblocking(False)
        second.setblocking(False)
        second.sendall(client_hello()[:100])
        assert min(await asyncio.gather(until_closed(first), until_closed(second))) > 0.5
    assert len(here) == 0
    here.close()


def pending_of(networks: str, known: KnownNetworks, most: int) -> tuple[list[mock.Mock], mock.Mock]:
    """The tasks of pending connections from these networks, which came in this order, and the count of those
    that had to make room."""
    dropped, tasks = mock.Mock(), [mock.Mock() for _ in networks]
    here = pending_connections.PendingConnections(mock.Mock(), dropped, known, most=most)
    for network, task in zip(networks, tasks, strict=True):
        one = pending_connections.PendingConnection(mock.Mock(), network, 1, network, 0.0, task=task)
        with mock.patch.object(here, "_epoll"), mock.patch.object(pending_connections, "_set_low_watermark"):
            here._arrived(one)
    assert len(here) == min(most, len(networks))
    return tasks, dropped


def ended(tasks: list[mock.Mock]) -> list[int]:
    return [place for place, task in enumerate(tasks) if task.cancel.mock_calls]


def test_of_all_strangers_the_oldest_of_the_address_with_the_most_makes_room() -> None:
    tasks, dropped = pending_of("abbcd", KnownNetworks(), most=4)
    assert (ended(tasks), dropped.mock_calls) == ([1], [mock.call()])


@pytest.mark.parametrize(
    ("networks", "made_room"),
    [
        ("kkabkc", [0, 2]),
        ("kkkabk", [0, 1]),
        ("kkkkak", [0, 1]),
        ("kkkkaab", [0, 1, 4]),
        ("kjkjab", [0, 1]),
        ("abcdk", [0]),
        ("aaaakkkk", [0, 1, 4, 5]),
    ],
)
def test_strangers_and_known_networks_have_half_of_the_places_each(
    networks: str, made_room: list[int]
) -> None:
    known = KnownNetworks()
    for network in "jk":
        known.record(network)
    assert ended(pending_of(networks, known, most=4)[0]) == made_room


def test_a_network_is_known_for_an_hour_after_the_last_look_at_its_member() -> None:
    with mock.patch.object(time, "monotonic") as now:
        now.return_value = 7.0
        known = KnownNetworks()
        known.record("k")
        now.return_value = 3600.0
        known.record("j")
        now.return_value = 7.0 + 3599.0
        known.forget()
        assert "k" in known
        now.return_value = 7.0 + 3600.0
        known.forget()
        assert ("k" in known, "j" in known, "a" in known) == (False, True, False)


async def test_a_member_makes_its_network_known_while_it_is_connected_and_a_stranger_does_not(
    rig: Rig,
) -> None:
    """Nor does a certificate without an admitted call: it may be on the deny-list."""
    here = rig.daemon._main_gateway
    with socket.create_connection(("127.0.0.1", rig.ports.port)) as one:
        one.sendall(client_hello())
        while not here._handshakes._in_progress:
            await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        while here._handshake_tasks:
            await asyncio.sleep(0.01)
    assert "127.0.0.1" not in here._known
    ada = await rig.client(Role.ANALYST, "ada")
    rig.daemon.registry.deny(Role.ANALYST, "ada")
    with pytest.raises(grpc.aio.AioRpcError, match="deny-list"):
        await ada.stub.Hello(REQUEST)
    anna = await rig.client(Role.SITE, "anna")
    await anna.channel.channel_ready()
    here.sweep()
    assert "127.0.0.1" not in here._known
    await anna.stub.Hello(REQUEST)
    here.sweep()
    assert "127.0.0.1" in here._known
    here._known._until["127.0.0.1"] = 0.0  # long ago
    here.sweep()
    assert "127.0.0.1" in here._known, "as long as it is connected"
    here._known._until["127.0.0.1"] = 0.0
    await anna.channel.close()
    await ada.channel.close()
    async with asyncio.timeout(5):
        while here._connections:
            await asyncio.sleep(0.01)
    here.sweep()
    assert "127.0.0.1" in here._known, "also of a short connection that no sweep saw"
    here._known._until["127.0.0.1"] = 0.0  # long ago
    here.sweep()
    assert "127.0.0.1" not in here._known

"""The front door: who may keep how many connections, for how long, and what ends them."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import cast

import grpc
import pytest

from eigenveil.identity import Role
from eigenveil_server import daemon
from eigenveil_server.front import connection, gateway, pending_connections, quota
from eigenveil_server.front.http2 import FrameFilter, Http2Frame, goaway
from eigenveil_server.front.quota import TokenBucket
from tests.server.rig import Credentials, Rig, made, serving
from tests.support import a_hello
from tests.torture.front.besieged import attackers_tls
from tests.torture.front.frames import (
    ACK,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    RST_STREAM,
    SERVICE,
    SETTINGS,
    call,
    frame,
    head,
    message,
    parse,
    settings,
    window_update,
)
from tests.torture.front.frames import HELLO as PREFACE_AND_SETTINGS

REQUEST = a_hello()
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(rig: Rig, stored: Credentials, folder: Path, text: bytes = PREFACE_AND_SETTINGS) -> Pair:
    pair = await asyncio.open_connection("127.0.0.1", rig.ports.port, ssl=attackers_tls(stored, folder))
    pair[1].write(text)
    return pair


async def received(pair: Pair, seconds: float = 60.0) -> bytes:
    """Everything until the coordinator closes the connection, which it must."""
    text = b""
    async with asyncio.timeout(seconds):
        try:
            while piece := await pair[0].read(65_536):
                text += piece
        except (ConnectionError, ssl.SSLError):
            pass
    pair[1].transport.abort()
    return text


async def test_a_connection_without_an_admitted_call_is_closed(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = await rig.credentials(Role.SITE, "anna")
    calling = rig.connect(anna)
    await calling.stub.Hello(REQUEST)
    monkeypatch.setattr(gateway, "CALL_SECONDS", 0.5)
    await received(await connected(rig, anna, tmp_path))
    assert calling.channel.get_state() is grpc.ChannelConnectivity.READY, "who calls may stay"


async def test_a_denial_closes_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "CALL_SECONDS", 600.0)

    async with serving(made(tmp_path / "c")) as rig:
        anna = await rig.credentials(Role.SITE, "anna")
        pairs = [await connected(rig, anna, tmp_path) for _ in range(3)]
        bert = await rig.client(Role.SITE, "bert")
        await bert.stub.Hello(REQUEST)
        rig.daemon.registry.deny(Role.SITE, "anna")
        for pair in pairs:
            await received(pair)
        await bert.stub.Hello(REQUEST)


async def test_one_certificate_has_few_connections_and_excludes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(quota, "FOR_SITES", 4)
    monkeypatch.setattr(quota, "MOST_OF_ONE", 3)
    monkeypatch.setattr(gateway, "CALL_SECONDS", 600.0)

    async with serving(made(tmp_path / "c")) as rig:
        eves = [await rig.credentials(Role.ANALYST, name) for name in ("eve", "mallory", "trudy")]
        pairs = [await connected(rig, stored, tmp_path) for stored in eves for _ in range(5)]
        ends = [asyncio.create_task(received(pair)) for pair in pairs]
        while len(ends) - sum(end.done() for end in ends) > 4:
            await asyncio.sleep(0.01)
        sites = [await rig.client(Role.SITE, f"site-{number}") for number in range(4)]
        for site in sites:
            await site.stub.Hello(REQUEST)
        assert not all(end.done() for end in ends), "sites have places of their own"
        for end in ends:
            end.cancel()


async def test_open_handshakes_give_way_to_newcomers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_connections, "MAX_PENDING_CONNECTIONS", 5)
    monkeypatch.setattr(pending_connections, "HANDSHAKE_MS", 600_000)

    def remaining() -> int:
        gc.collect()
        return sum(isinstance(thing, connection.GatewayConnection) for thing in gc.get_objects())

    async with serving(made(tmp_path / "c")) as rig:
        idle = [await asyncio.open_connection("127.0.0.1", rig.ports.port) for _ in range(20)]
        anna = await rig.client(Role.SITE, "anna")
        await anna.stub.Hello(REQUEST)
        await received(idle[0], 5.0)
        for _, writer in idle:
            writer.transport.abort()
        async with asyncio.timeout(100):  # nothing is kept of whoever was let go
            while remaining() > 1:  # anna's
                await asyncio.sleep(0.01)


async def test_a_client_that_resets_calls_gets_goaway_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "eigenveil")
    monkeypatch.setattr(gateway, "BLOCK_SECONDS", 600.0)
    opened = head(f"{SERVICE}/Hello")
    calls = b"".join(
        frame(HEADERS, END_HEADERS, n, opened) + frame(RST_STREAM, 0, n, bytes(4)) for n in range(1, 600, 2)
    )

    async with serving(made(tmp_path / "c")) as rig:
        anna, bert = await rig.credentials(Role.SITE, "anna"), await rig.client(Role.SITE, "bert")
        text = await received(await connected(rig, anna, tmp_path, PREFACE_AND_SETTINGS + calls))
        assert GOAWAY in [kind for kind, *_ in parse(text)]
        metric = rig.daemon.runtime.metrics.registry.get_sample_value
        uri = "eigenveil://test-fed/site/anna"
        _, again = await connected(rig, anna, tmp_path)
        async with asyncio.timeout(100):  # not at once again
            while not metric("eigenveil_closed_connections_total", {"why": "cut-off", "peer": uri}):
                await asyncio.sleep(0.01)
        again.transport.abort()
        await bert.stub.Hello(REQUEST)
        assert metric("eigenveil_closed_connections_total", {"why": "resets", "peer": uri}) == 1.0
    result = [record.getMessage() for record in caplog.records if "why=resets" in record.getMessage()]
    assert len(result) == 1
    assert "eigenveil://test-fed/site/anna" in result[0]
    assert "address='127.0.0.1:" in result[0]


async def test_a_socket_closed_before_it_is_accepted_leaves_nothing(rig: Rig) -> None:
    here = rig.daemon._main_gateway
    for _ in range(20):  # none is seen before the last one is gone
        with socket.create_connection(("127.0.0.1", rig.ports.port)) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bert = await rig.client(Role.SITE, "bert")
    await bert.stub.Hello(REQUEST)
    async with asyncio.timeout(100):
        while len(here._sockets) > 1 or here._handshake_tasks or len(here._pending_connections):
            await asyncio.sleep(0.01)


async def test_a_client_that_does_not_read_its_replies_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STUCK_SECONDS", 0.3)
    greeting = message(REQUEST.SerializeToString())
    windows = settings((4, 2**31 - 1)) + window_update(0, 2**30) + frame(SETTINGS, ACK, 0)

    async with serving(made(tmp_path / "c")) as rig:
        anna = await rig.credentials(Role.SITE, "anna")
        _, writer = await connected(rig, anna, tmp_path, PREFACE_AND_SETTINGS + windows)
        while not (found := tuple(rig.daemon._main_gateway._connections.values())):
            await asyncio.sleep(0.01)
        (stuck,) = found
        for transport in (writer.transport, stuck.outer):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.outer.set_write_buffer_limits(high=4096)
        stuck.info.client.allowance = TokenBucket(burst=1e6, rate=1e6)
        cast(asyncio.Transport, writer.transport).pause_reading()
        async with asyncio.timeout(100):
            for stream in range(1, 2001, 2):
                writer.write(call(stream, "Hello", greeting))
                await asyncio.sleep(0.02 if stream % 40 == 1 else 0)
                if stuck.ended:
                    break
            while rig.daemon._main_gateway._sockets:
                await asyncio.sleep(0.01)
        writer.transport.abort()


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_frames_pass_whole_and_in_order_however_they_are_cut(size: int) -> None:
    data = b"preface!" + b"".join(frame(kind, 0, kind, bytes(kind)) for kind in range(20)) + goaway("why")
    seen: list[int] = []

    def look(one: Http2Frame) -> bool:
        seen.append(one.kind)
        return True

    frames, passed = FrameFilter(look, preface=8), b""
    for at in range(0, len(data), size):
        frames.feed(data[at : at + size])
        passed += frames.data_to_send()
    assert (passed, frames.at_boundary) == (data, True)
    assert seen == [*range(20), 7]


def test_an_allowance_is_waited_for_and_a_fine_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    allowance = TokenBucket(burst=10, rate=2)
    assert [allowance.spend(6) for _ in range(3)] == [True, True, False]
    assert allowance.seconds == 1.0
    now[0] += 1.5
    assert allowance.spend(1)
    for _ in range(9):
        allowance.penalise(20)
    assert allowance.seconds == 10.0
    now[0] += 100
    assert allowance.full

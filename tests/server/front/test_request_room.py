"""A connection whose frames wait for room: what it has sent, and what its guest is not blamed for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from eigenveil.identity import Role
from eigenveil_server.front import http2
from eigenveil_server.front.connection import GatewayConnection
from eigenveil_server.front.http2 import UNFINISHED
from eigenveil_server.front.message_quota import (
    FREE_BYTES,
    MAX_BYTES_PER_CLIENT,
    MOST_REQUEST_BYTES,
    RequestQuota,
)
from eigenveil_server.front.quota import ConnectionInfo, GatewayClient
from tests.torture.front.frames import END_HEADERS, HEADERS, PREFACE, RST_STREAM, data, frame


class Host:
    """A door with one connection, whose other guests can take all room."""

    def __init__(self) -> None:
        self.requests = RequestQuota(lambda client: None)
        self.read_buffer = memoryview(bytearray(2**20))
        self.quota: Any = mock.Mock()

    def __getattr__(self, name: str) -> mock.Mock:
        return mock.Mock()

    def fill(self) -> None:
        for number in range(MOST_REQUEST_BYTES // MAX_BYTES_PER_CLIENT):
            assert self.requests.take(
                GatewayClient(name=f"other {number}", role=Role.SITE), MAX_BYTES_PER_CLIENT
            )

    def clear(self) -> None:
        for number in range(MOST_REQUEST_BYTES // MAX_BYTES_PER_CLIENT):
            self.requests.give_back(
                GatewayClient(name=f"other {number}", role=Role.SITE), MAX_BYTES_PER_CLIENT
            )


@contextmanager
def connected(host: Host) -> Iterator[tuple[GatewayConnection, mock.Mock]]:
    """The connection and gRPC's end of it, which is told nothing that does not pass."""
    made, inner = GatewayConnection(host), mock.Mock()
    made.connection_made(mock.Mock())
    client = GatewayClient(name="eve", role=Role.SITE)
    made.name, made.info = "1", ConnectionInfo(peer="", certificate=b"", client=client)
    made.begin(inner)
    feed(made, PREFACE)
    yield made, inner
    made.end()


def feed(made: GatewayConnection, *frames: bytes) -> None:
    text = b"".join(frames)
    for at in range(0, len(text), 2**20):
        piece = text[at : at + 2**20]
        made.get_buffer(0)[: len(piece)] = piece
        made.buffer_updated(len(piece))


def opened(number: int = 1) -> bytes:
    return frame(HEADERS, END_HEADERS, number, b"x")


async def test_a_wait_for_room_ends_no_connection_and_is_not_counted() -> None:
    host, begun = Host(), time.monotonic()
    with connected(host) as (made, _), mock.patch.object(time, "monotonic") as now:
        now.return_value = begun
        host.fill()
        feed(made, opened(), data(1, bytes(FREE_BYTES), end=False))
        assert made.overdue() == "", "it has moved enough for now"
        feed(made, data(1, bytes(1000), end=False))
        for _ in range(100):
            now.return_value += http2.STUCK_SECONDS / 10
            assert made.overdue() == ""
        host.clear()
        made._resume_passing()
        now.return_value += http2.STUCK_SECONDS - 1.0
        assert made.overdue() == ""
        now.return_value += 2.0
        assert made.overdue() == UNFINISHED


async def test_who_stands_at_the_limit_of_streams_is_not_excused() -> None:
    host, begun = Host(), time.monotonic()
    with connected(host) as (made, _), mock.patch.object(time, "monotonic") as now:
        now.return_value = begun
        feed(made, opened())
        host.quota.may_open.return_value = False
        feed(made, opened(3))
        assert made._inward.stopped
        now.return_value += 1.0 + http2.STUCK_SECONDS
        assert made.overdue() == UNFINISHED


@pytest.mark.parametrize("answer", [True, False])
async def test_a_request_is_complete_when_its_last_byte_has_passed(answer: bool) -> None:
    host = Host()
    with connected(host) as (made, _):
        request = data(1, bytes(100_000))
        feed(made, opened(), request[:-1])
        stored = host.requests._of["eve"]
        assert (stored.sent, stored.whole) == (100_000, 0), (
            "the head of the last frame says that it is the last"
        )
        feed(made, request[-1:])
        assert (stored.sent, stored.whole) == (100_000, 100_000)
        feed(made, opened(3), data(3, bytes(1000), end=False))
        assert (stored.sent, stored.whole) == (101_000, 100_000)
        if answer:
            made.send_to_caller(frame(HEADERS, END_HEADERS, 1, b"x"))
            assert (stored.sent, stored.whole) == (1000, 0)
    assert not host.requests._of


async def test_a_request_that_is_taken_back_leaves_its_room_and_its_stream_to_others() -> None:
    host = Host()
    with connected(host) as (made, _):
        feed(made, opened(), data(1, bytes(1000), end=False), frame(RST_STREAM, 0, 1, bytes(4)))
        assert not host.requests._of
        assert host.quota.closed.mock_calls == [mock.call(made.info.client, 1)]

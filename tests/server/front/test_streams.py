"""Streams: which are open, what no client may send, and which wait for their client for too long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.identity import Role
from eigenveil_server.front import http2, quota
from eigenveil_server.front.connection import GatewayConnection
from eigenveil_server.front.gateway import Gateway
from eigenveil_server.front.http2 import (
    LEAST_BYTES,
    STUCK_SECONDS,
    UNFINISHED,
    UNREAD,
    FrameFilter,
    Http2Frame,
    Http2Streams,
    InvalidFrame,
)
from eigenveil_server.front.quota import ConnectionInfo, ConnectionQuota, GatewayClient, ListenerLimits
from tests.server.front.test_gateway import connected, received
from tests.server.front.test_request_room import feed
from tests.server.rig import Rig, made, serving
from tests.support import a_hello
from tests.torture.front.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PREFACE,
    PRIORITY,
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

GREETING = message(a_hello().SerializeToString())
FIRST_WINDOW = 65_535
LIMITS = ListenerLimits(strangers=1, connections=9, calls=40, for_sites=3)
WINDOW = 4  # INITIAL_WINDOW_SIZE


class Line:
    """One connection, told of frames as bytes; the clock stands until it is moved."""

    def __init__(self) -> None:
        self.streams, self.now, self.open = Http2Streams(), 0.0, 0
        self._inward, self._outward = FrameFilter(self._may_enter), FrameFilter(self._leaves)

    def _may_enter(self, one: Http2Frame) -> bool:
        if one.kind == RST_STREAM:
            self.open -= self.streams.cancel_stream(one.stream)
        self.open += self.streams.enter(one, self.now)
        return True

    def _leaves(self, one: Http2Frame) -> bool:
        self.open -= self.streams.leave(one, self.now)
        return True

    def client(self, *frames: bytes) -> Line:
        self._inward.feed(b"".join(frames))
        self._inward.data_to_send()
        assert self.open == len(self.streams)
        return self

    def server(self, *frames: bytes) -> Line:
        self._outward.feed(b"".join(frames))
        self._outward.data_to_send()
        assert self.open == len(self.streams)
        return self

    def after(self, seconds: float) -> str:
        """Reason overdue by then, checked every half second, as by the watchdog."""
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            if why := self.streams.overdue(self.now):
                return why
        return ""


def query_frames(number: int = 1) -> bytes:
    return frame(HEADERS, END_HEADERS, number, b"x") + frame(DATA, END_STREAM, number, b"y")


def answered(number: int = 1) -> bytes:
    return frame(HEADERS, END_HEADERS, number, b"x")


def sent(size: int, number: int = 1, flags: int = 0) -> bytes:
    return b"".join(
        frame(DATA, flags, number, bytes(min(16_384, size - at))) for at in range(0, size, 16_384)
    )


@pytest.mark.parametrize(
    "last",
    [
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"trailers"),
        frame(DATA, END_STREAM, 1, b""),
        frame(DATA, END_STREAM | PADDED, 1, b"\x01a\x00"),
        frame(HEADERS, END_STREAM, 1, b"t") + frame(CONTINUATION, END_HEADERS, 1, b"railers"),
        frame(RST_STREAM, 0, 1, bytes(4)),
    ],
)
def test_a_stream_is_open_until_its_last_frame_has_left(last: bytes) -> None:
    line = Line().client(query_frames()).server(answered(), sent(1000))
    assert len(line.streams) == 1
    assert len(line.server(last).streams) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        query_frames(2),
        query_frames(2**31 - 2),
        query_frames(0),
        query_frames(5) + query_frames(3),
        query_frames(2**31 - 1) + query_frames(2**31 + 1),  # no larger number is left
        window_update(0, 0),
        query_frames() + window_update(1, 0),
        window_update(0, 2**31 - 1),
        query_frames() + window_update(1, 2**31 - 1),
        frame(8, 0, 0, bytes(3)),
        settings((WINDOW, 2**31)),
        frame(SETTINGS, 0, 0, bytes(7)),
        settings(*((n % 3 + 7, n) for n in range(200))),
    ],
)
def test_what_no_client_may_send_does_not_pass(wrong: bytes) -> None:
    with pytest.raises(InvalidFrame):
        Line().client(wrong)


@pytest.mark.parametrize(
    ("dispatch", "each_half_second"),
    [
        (settings((WINDOW, 0)), b""),
        (settings((WINDOW, 0)), window_update(1, 1)),
        (settings((WINDOW, 100)) + window_update(0, 2**30), b""),
        (settings((WINDOW, 2**31 - 1)), b""),  # the connection's own window is the smaller one
        (settings((WINDOW, 2**20), (WINDOW, 0)), settings((WINDOW, 1)) + settings((WINDOW, 0))),
        (settings((WINDOW, 0)), frame(PRIORITY, 0, 1, bytes(5)) + frame(SETTINGS, ACK, 0)),
        (settings((WINDOW, 0)), window_update(3, 2**20) + window_update(0, 2**20)),  # of another stream
    ],
)
def test_a_reply_that_is_not_read_is_overdue(dispatch: bytes, each_half_second: bytes) -> None:
    """The server sends all that the windows allow, as gRPC does."""
    line = Line().client(dispatch, query_frames()).server(answered())
    reply, waited = 4 * 2**20, 0.0
    while not (why := line.after(0.5)):
        waited += 0.5
        assert waited < 2 * STUCK_SECONDS, "it is not noticed"
        own = line.streams._open[1]
        space = min(line.streams._window, line.streams._initial + own.window, reply)
        line.server(sent(max(0, space)))
        reply -= max(0, space)
        line.client(each_half_second if waited < 1000 else b"")
    assert why == UNREAD
    assert waited >= STUCK_SECONDS - 1


def test_what_leaves_for_a_stream_that_was_taken_back_uses_up_the_connections_window() -> None:
    """gRPC had sent it before it heard; no frame of the client makes room for it again."""
    line = Line().client(query_frames()).server(answered()).client(frame(RST_STREAM, 0, 1, bytes(4)))
    line.server(sent(FIRST_WINDOW)).client(query_frames(3)).server(answered(3))
    assert line.after(2 * STUCK_SECONDS) == UNREAD


def test_a_reply_has_its_own_time_however_long_its_request_took() -> None:
    line = Line().client(settings((WINDOW, 0)), frame(HEADERS, END_HEADERS, 1, b"x"))
    assert line.after(STUCK_SECONDS - 1) == ""
    line.client(frame(DATA, END_STREAM, 1, b"y")).server(answered())
    assert line.after(STUCK_SECONDS - 1) == ""
    assert line.after(2.0) == UNREAD


def test_who_waits_for_the_coordinator_is_let_alone() -> None:
    """A long poll, whatever its window; and a watch without events, that grants one."""
    assert Line().client(settings((WINDOW, 0)), query_frames()).after(10 * STUCK_SECONDS) == ""
    assert Line().client(query_frames()).server(answered(), sent(1000)).after(10 * STUCK_SECONDS) == ""


def test_a_request_that_never_ends_is_overdue() -> None:
    opened = frame(HEADERS, END_HEADERS, 1, b"x")
    assert Line().client(opened).after(2 * STUCK_SECONDS) == UNFINISHED
    line = Line().client(opened)
    for _ in range(10):
        assert line.client(sent(LEAST_BYTES)).after(STUCK_SECONDS - 1) == ""
    for _ in range(300):
        if why := line.client(sent(1)).after(0.5):
            break
    assert why == UNFINISHED
    assert Line().client(frame(HEADERS, END_HEADERS | END_STREAM, 1, b"x")).after(100 * STUCK_SECONDS) == ""


class Calling:
    """A connection of a guest, with so many open streams."""

    def __init__(self, client: GatewayClient) -> None:
        self.info = ConnectionInfo(peer="", certificate=b"", client=client)
        self.streams, self.why = 0, ""
        client.open.add(self)

    def end(self, why: str = "") -> None:
        self.why = why


def test_of_all_who_are_no_sites_the_one_with_the_most_streams_makes_room() -> None:
    here = ConnectionQuota(lambda one, why: one.end(why), LIMITS)
    eve, ada, anna = (
        GatewayClient(name=name, role=role)
        for name, role in (("eve", Role.ANALYST), ("ada", Role.ANALYST), ("anna", Role.SITE))
    )
    here._clients = {client.name: client for client in (eve, ada, anna)}
    callers = {client.name: Calling(client) for client in (eve, ada, anna)}

    def opened(client: GatewayClient) -> None:
        here.opened(client)
        callers[client.name].streams += 1

    for _ in range(10):
        assert here.may_open(eve)
        opened(eve)
    assert not here.may_open(eve), "a quarter of all calls"
    for client in [anna] * 30 + [ada] * 10:
        opened(client)
    assert [one.why for one in callers.values()] == ["", "", ""], "half of all calls, and none beyond"
    eve.streams += 5
    here._others += 5
    opened(ada)
    assert [one.why for one in callers.values()] == ["streams", "", ""]
    here.closed(eve, 15)
    assert (here.may_open(eve), here._others) == (True, 11)


def test_of_a_clients_connections_the_oldest_of_those_with_the_most_streams_makes_room() -> None:
    here, eve = (
        ConnectionQuota(lambda one, why: one.end(why), LIMITS),
        GatewayClient(name="eve", role=Role.ANALYST),
    )
    here._clients = {"eve": eve}
    callers = [Calling(eve) for _ in range(3)]
    for number, one in enumerate(callers):
        one.info.began, one.streams = float(number), 9
    callers[0].streams = 2
    for _ in range(20):
        here.opened(eve)
    here.opened(eve)
    assert [one.why for one in callers] == ["", "streams", ""]


def test_a_client_is_remembered_while_an_idle_connection_is_open() -> None:
    """A forgotten client would have all of its limits anew."""
    here = ConnectionQuota(lambda one, why: one.end(why), LIMITS)
    client = here.client_of(None, "::1")
    Calling(client)
    here.forget()
    assert here.client_of(None, "::1") is client
    client.open.clear()
    here.forget()
    assert here.client_of(None, "::1") is not client


async def test_streams_are_counted_for_a_certificate_and_not_for_each_of_its_connections(
    tmp_path: Path,
) -> None:
    refuse = mock.Mock()
    entrance = Gateway(
        tmp_path / "door", tls=refuse, identify=refuse, check_admitted=refuse, closed=refuse, limits=LIMITS
    )
    eve = GatewayClient(name="eve", role=Role.ANALYST)
    one, other = GatewayConnection(entrance), GatewayConnection(entrance)
    for connection in (one, other):
        connection.connection_made(mock.Mock())
        connection.info = ConnectionInfo(peer="", certificate=b"", client=eve)
        connection.begin(mock.Mock())
        feed(connection, PREFACE)
    for number in range(1, 2 * LIMITS.streams_per_client, 2):
        feed(one, call(number, "Hello", GREETING))
    feed(other, call(1, "Hello", GREETING))
    assert (one.streams, other.streams) == (LIMITS.streams_per_client, 0)
    other.end()
    await entrance.close()


async def test_a_client_that_does_not_read_gets_goaway_and_has_no_more_than_its_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "STUCK_SECONDS", 1.5)
    monkeypatch.setattr(quota, "MAX_STREAMS_PER_CLIENT", 10)
    feed = PREFACE + settings((WINDOW, 0)) + frame(SETTINGS, ACK, 0)
    calls = b"".join(call(number, "Hello", GREETING) for number in range(1, 60, 2))

    async with serving(made(tmp_path / "c")) as rig:
        eve, bert = await rig.credentials(Role.ANALYST, "eve"), await rig.client(Role.SITE, "bert")
        listening = asyncio.create_task(received(await connected(rig, eve, tmp_path, feed + calls), 30.0))
        clients = rig.daemon._main_gateway.quota._clients
        uri, stored = "eigenveil://test-fed/analyst/eve", 0
        while not listening.done():
            await bert.stub.Hello(a_hello())
            stored = max(stored, clients[uri].streams if uri in clients else 0)
            await asyncio.sleep(0.01)
        goaway = [payload for kind, _, _, payload in parse(listening.result()) if kind == GOAWAY]
        assert b"an answer was not read in time" in goaway[-1]
        assert stored == 10
        assert clients[uri].streams == 0
        assert rig.daemon._main_gateway.quota._others == 0


@pytest.mark.parametrize("number", [2, 2**31 - 2])
async def test_one_even_number_ends_the_connection(rig: Rig, tmp_path: Path, number: int) -> None:
    opened = frame(HEADERS, END_HEADERS, number, head(f"{SERVICE}/Hello"))

    eve = await rig.credentials(Role.ANALYST, "eve")
    calls = settings() + opened + call(1, "Hello", GREETING)
    feed = await received(await connected(rig, eve, tmp_path, PREFACE + calls))
    goaway = [payload for kind, _, _, payload in parse(feed) if kind == GOAWAY]
    assert b"a frame is not valid HTTP/2" in goaway[-1]
    assert HEADERS not in [kind for kind, *_ in parse(feed)]

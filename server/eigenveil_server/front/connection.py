"""Connection between a caller and gRPC, from its TLS handshake on, frame by frame."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol, cast

from eigenveil_server.front.http2 import (
    DATA,
    END_STREAM,
    HEADERS,
    PREFACE_BYTES,
    RST_STREAM,
    FrameFilter,
    Http2Frame,
    Http2Streams,
    InvalidFrame,
    goaway,
)
from eigenveil_server.front.message_quota import RequestQuota
from eigenveil_server.front.quota import CALL, ConnectionInfo, ConnectionQuota, GatewayClient, QuotaConnection

SMALL_BYTES = 512  # larger frames of DATA are free: they are the payload of calls
LEAST_WAIT = 0.001
QUOTA_WAIT = 0.1  # before the quota of request bytes is checked again
STREAMS_WAIT = 0.02  # before the quota of streams is checked again
STUCK_SECONDS = 60.0  # for a caller to read what it was sent: gRPC's own end is not seen before


class ConnectionObserver(Protocol):
    """Quotas of a connection, and its start and end. `read_buffer` takes decrypted bytes of all connections
    of one event loop, since each read ends before the next begins. A buffer for each read would cost an
    allocation of its full size for each TLS record."""

    read_buffer: memoryview
    quota: ConnectionQuota
    requests: RequestQuota

    def arrived(self, connection: GatewayConnection) -> None:
        """The handshake of a connection begins."""

    def left(self, connection: GatewayConnection) -> None:
        """The connection has ended. Called once."""

    def socket_closed(self, connection: GatewayConnection) -> None:
        """The socket of a connection is closed. Called once, after `left`."""

    def cut(self, connection: QuotaConnection, why: str) -> None:
        """Close a connection whose client violates HTTP/2."""

    def block(self, client: GatewayClient, why: str) -> None:
        """Close all connections of a client, and refuse new ones for a while."""


class GatewayConnection(asyncio.BufferedProtocol):
    """The caller's end of a connection, first without and then with TLS. Nothing passes before `begin`."""

    info: ConnectionInfo  # set with `name` and `network`, once the connection is admitted

    def __init__(self, observer: ConnectionObserver) -> None:
        self._observer = observer
        self.name = ""  # of gRPC's end
        self.network = ""  # of the caller's address
        self._inner: asyncio.Transport | None = None
        self._inward = FrameFilter(self._may_enter, PREFACE_BYTES)
        self._outward = FrameFilter(self._leaves)
        self._streams = Http2Streams()
        self._sent: dict[int, int] = {}  # bytes passed of unanswered requests, by stream
        self._complete_bytes: dict[int, int] = {}  # the same of those that are complete
        self._ending_stream = 0  # the stream whose last frame is passing
        self._wait = LEAST_WAIT  # before a blocked frame is checked again
        self._stops = 0  # reasons not to read from the caller
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self.ended = False

    # ------------------------------------------------------------ the caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outer = cast(asyncio.Transport, transport)
        self.outer.pause_reading()  # TLS reads from the first byte on
        self._observer.arrived(self)

    def begin(self, inner: asyncio.Transport) -> None:
        """Pass on what was received meanwhile, and all that follows."""
        self._inner = inner
        self._pass()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._observer.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._inward.feed(bytes(self._observer.read_buffer[:nbytes]))
        self._pass()

    def _pass(self) -> None:
        if self._inner is None:
            return
        passed = self._inward.data_to_send()
        if self.ended:
            return
        if self._inward.at_boundary:
            self._complete_request()
        if passed:
            self._inner.write(passed)
        if self._inward.stopped and self._timer is None:
            self.stop_reading()
            wait = max(self._wait, self.info.client.allowance.seconds)
            self._timer = asyncio.get_running_loop().call_later(wait, self._resume_passing)

    def _resume_passing(self) -> None:
        self._timer = None
        self.resume_reading_caller()
        self._pass()

    def _may_enter(self, frame: Http2Frame) -> bool:
        """Return True if a frame may pass within the rate limit of its client."""
        observer, client = self._observer, self.info.client
        self._complete_request()  # the previous frame has passed completely
        self._wait = LEAST_WAIT
        if self._streams.new(frame) and not observer.quota.may_open(client):
            self._wait = STREAMS_WAIT
            return False
        # A cancellation is paid for with its call and never delayed: gRPC would answer the call uncounted.
        unanswered = self._streams.unanswered(frame.stream)
        cancelled_early = frame.kind == RST_STREAM and unanswered
        cost = CALL if frame.kind == HEADERS else int(frame.kind != DATA or frame.length < SMALL_BYTES)
        if not cancelled_early and not client.allowance.spend(cost):
            return False
        if frame.kind == DATA and unanswered:
            if not observer.requests.take(client, frame.length):
                self._wait = QUOTA_WAIT
                return False
            self._sent[frame.stream] = self._sent.get(frame.stream, 0) + frame.length
            self._ending_stream = frame.stream if frame.flags & END_STREAM else 0
        if frame.kind == RST_STREAM and self._streams.cancel_stream(frame.stream):
            self._release_bytes(frame.stream)
            observer.quota.closed(client, 1)
        if cancelled_early and not client.resets.spend(1):
            observer.block(client, "resets")
            return False
        try:
            if self._streams.enter(frame, time.monotonic()):
                observer.quota.opened(client)
        except InvalidFrame:
            observer.cut(self, "misframed")
            return False
        return not self.ended

    def _complete_request(self) -> None:
        """Mark a request as complete if its last frame has passed completely."""
        stream, self._ending_stream = self._ending_stream, 0
        if stream in self._sent and stream not in self._complete_bytes:
            self._complete_bytes[stream] = self._sent[stream]
            self._observer.requests.complete(self.info.client, self._sent[stream])

    def _release_bytes(self, stream: int) -> None:
        """Release the bytes of an answered request."""
        if stream in self._sent:
            whole = self._complete_bytes.pop(stream, 0)
            self._observer.requests.give_back(self.info.client, self._sent.pop(stream), whole=whole)

    def stop_reading(self) -> None:
        """Pause reading from the caller, until `resume_reading_caller` was called as often."""
        self._stops += 1
        if self._stops == 1:
            self.outer.pause_reading()

    def resume_reading_caller(self) -> None:
        self._stops -= 1
        if not self._stops and not self.ended:
            self.outer.resume_reading()

    def pause_writing(self) -> None:
        """Pause gRPC while the caller reads slowly, for `STUCK_SECONDS` at most."""
        if self._inner is not None and not self.ended:
            self._inner.pause_reading()
            self._stuck = asyncio.get_running_loop().call_later(STUCK_SECONDS, self.end)

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        if self._inner is not None and not self.ended:
            self._inner.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()
        self._observer.socket_closed(self)

    # ------------------------------------------------------------ gRPC

    def send_to_caller(self, data: bytes) -> None:
        self._outward.feed(data)
        self.outer.write(self._outward.data_to_send())

    def _leaves(self, frame: Http2Frame) -> bool:
        if frame.kind in (HEADERS, RST_STREAM):
            self._release_bytes(frame.stream)
        if self._streams.leave(frame, time.monotonic()):
            self._observer.quota.closed(self.info.client, 1)
        return True

    @property
    def streams(self) -> int:
        return len(self._streams)

    def overdue(self) -> str:
        """Return the reason to close a connection whose caller is too slow. Empty if no stream is overdue,
        and while frames of the caller wait here for the quota."""
        now = time.monotonic()
        if self._inward.stopped and self._wait == QUOTA_WAIT:
            self._streams.restart_timers(now)
            return ""
        return self._streams.overdue(now)

    # ------------------------------------------------------------ the end

    def end(self, why: str = "") -> None:
        """Close both ends. The caller gets the reason in a GOAWAY frame, if one fits between two frames."""
        if self.ended:
            return
        self.ended = True
        for stream in tuple(self._sent):
            self._release_bytes(stream)
        if self.name:
            self._observer.quota.closed(self.info.client, len(self._streams))
        for timer in (self._timer, self._stuck):
            if timer is not None:
                timer.cancel()
        if self._inner is None:
            self.outer.abort()
        else:
            if why and self._outward.at_boundary:
                self.outer.write(goaway(why))
            self._inner.close()
            self.outer.close()
        self._observer.left(self)


@dataclass(eq=False)
class Upstream(asyncio.Protocol):
    """gRPC's end of a connection. While gRPC reads slowly, the caller is paused."""

    _connection: GatewayConnection

    def data_received(self, data: bytes) -> None:
        if not self._connection.ended:
            self._connection.send_to_caller(data)

    def pause_writing(self) -> None:
        self._connection.stop_reading()

    def resume_writing(self) -> None:
        self._connection.resume_reading_caller()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.end()

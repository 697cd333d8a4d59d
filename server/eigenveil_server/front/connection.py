"""One connection from its TLS handshake on: bytes between a caller and gRPC, frame by frame."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, cast

from eigenveil_server.front.admission import CALL, Arrival
from eigenveil_server.front.frames import (
    DATA,
    END_STREAM,
    HEADERS,
    PREFACE_BYTES,
    RST_STREAM,
    Frame,
    Frames,
    goaway,
)
from eigenveil_server.front.requests import Requests
from eigenveil_server.front.streams import Misframed, Streams

SMALL_BYTES = 512  # every frame costs something but larger ones of DATA, which are what calls are for
LEAST_WAIT = 0.001
ROOM_WAIT = 0.1  # until it is looked whether there is room for more of a request
STREAMS_WAIT = 0.02  # until it is looked whether a guest with as many streams as may be has one fewer
STUCK_SECONDS = 60.0  # for a caller to take what it was sent: gRPC's own end cannot be seen behind that


class Host(Protocol):
    """Who is told of a connection: that it came, that it ended, what its guest does that may not be, and how
    many streams are open.

    `room` is where what was decrypted is put together, for all connections of one loop: each read ends before
    another begins. An `ssl` object that is asked for bytes makes as many as it might give for each record.
    """

    room: memoryview
    requests: Requests

    def arrived(self, connection: Connection) -> None:
        """Its handshake begins."""

    def left(self, connection: Connection) -> None:
        """It has ended; said once."""

    def vanished(self, connection: Connection) -> None:
        """Its socket is closed; said once, afterwards."""

    def misused(self, connection: Connection) -> None:
        """More calls were taken back before an answer than may be."""

    def misframed(self, connection: Connection) -> None:
        """A frame came that no client may send."""

    def may_open(self, connection: Connection) -> bool:
        """Whether one more of its guest's streams may be open now."""

    def opened(self, connection: Connection) -> None:
        """One more stream is open; there may be too many in all, so that a connection ends."""

    def closed(self, connection: Connection, count: int) -> None:
        """So many streams fewer are open."""


class Connection(asyncio.BufferedProtocol):
    """The caller's end, first without and then with TLS. Nothing passes before `begin`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.arrival: Arrival | None = None
        self.name = ""  # of gRPC's end
        self._inner: asyncio.Transport | None = None
        self._inward = Frames(self._enters, PREFACE_BYTES)
        self._outward = Frames(self._answers)
        self._streams = Streams()
        self._sent: dict[int, int] = {}  # bytes of requests without an answer that have passed
        self._whole: dict[int, int] = {}  # of those, the requests that have come to their end
        self._ending = 0  # the stream whose last frame is passing
        self._wait = LEAST_WAIT  # for a frame that may not pass yet
        self._stops = 0  # reasons not to read from the caller
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self.ended = False

    # ------------------------------------------------------------ the caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outer = cast(asyncio.Transport, transport)
        self.outer.pause_reading()  # TLS reads from the first byte on
        self._host.arrived(self)

    def begin(self, inner: asyncio.Transport) -> None:
        """Pass on what was said meanwhile, and everything from now on; `arrival` is known by now."""
        self._inner = inner
        self._pass()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._host.room

    def buffer_updated(self, nbytes: int) -> None:
        self._inward.keep(bytes(self._host.room[:nbytes]))
        self._pass()

    def _pass(self) -> None:
        if self._inner is None or self.arrival is None:
            return
        passed = self._inward.cut()
        if self.ended:
            return
        if self._inward.between:
            self._completed()
        if passed:
            self._inner.write(passed)
        if self._inward.stopped and self._timer is None:
            self.stop_reading()
            wait = max(self._wait, self.arrival.guest.allowance.seconds)
            self._timer = asyncio.get_running_loop().call_later(wait, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self.read_on()
        self._pass()

    def _enters(self, frame: Frame) -> bool:
        """Whether a frame may pass now: what its guest may do in a second is not done yet."""
        if self.arrival is None:
            return False
        self._completed()  # the frame before has passed to its last byte
        self._wait = LEAST_WAIT
        if self._streams.new(frame) and not self._host.may_open(self):
            self._wait = STREAMS_WAIT
            return False
        # Paid for with its call, and never held back: gRPC would answer the call meanwhile, uncounted.
        unanswered = self._streams.unanswered(frame.stream)
        taken_back = frame.kind == RST_STREAM and unanswered
        cost = CALL if frame.kind == HEADERS else int(frame.kind != DATA or frame.length < SMALL_BYTES)
        if not taken_back and not self.arrival.guest.allowance.spend(cost):
            return False
        if frame.kind == DATA and unanswered and not self._has_room(frame):
            self._wait = ROOM_WAIT
            return False
        if frame.kind == RST_STREAM and self._streams.take_back(frame.stream):
            self._answered(frame.stream)
            self._host.closed(self, 1)
        if taken_back and not self.arrival.guest.resets.spend(1):
            self._host.misused(self)
            return False
        return self._counted(frame)

    def _counted(self, frame: Frame) -> bool:
        """Whether a frame that is paid for may pass, as far as streams are concerned."""
        try:
            opens = self._streams.enter(frame, time.monotonic())
        except Misframed:
            self._host.misframed(self)
            return False
        if opens:
            self._host.opened(self)
        return not self.ended

    def _has_room(self, frame: Frame) -> bool:
        """Whether there is room for so much more of an unanswered request, which is then taken."""
        if self.arrival is None or not self._host.requests.take(self.arrival.guest, frame.length):
            return False
        self._sent[frame.stream] = self._sent.get(frame.stream, 0) + frame.length
        self._ending = frame.stream if frame.flags & END_STREAM else 0
        return True

    def _completed(self) -> None:
        """Whatever has passed has passed to its last byte, and so has a request that ended with it."""
        stream, self._ending = self._ending, 0
        if self.arrival is not None and stream in self._sent and stream not in self._whole:
            self._whole[stream] = self._sent[stream]
            self._host.requests.complete(self.arrival.guest, self._sent[stream])

    def _answered(self, stream: int) -> None:
        """Nothing of this request is kept any more."""
        if self.arrival is not None and stream in self._sent:
            whole = self._whole.pop(stream, 0)
            self._host.requests.give(self.arrival.guest, self._sent.pop(stream), whole=whole)

    def stop_reading(self) -> None:
        """One more reason not to read from the caller."""
        self._stops += 1
        if self._stops == 1:
            self.outer.pause_reading()

    def read_on(self) -> None:
        self._stops -= 1
        if not self._stops and not self.ended:
            self.outer.resume_reading()

    def pause_writing(self) -> None:
        """The caller reads slowly: gRPC has to wait, but not for ever."""
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
        self._host.vanished(self)

    # ------------------------------------------------------------ gRPC

    def say(self, data: bytes) -> None:
        self._outward.keep(data)
        self.outer.write(self._outward.cut())

    def _answers(self, frame: Frame) -> bool:
        if frame.kind in (HEADERS, RST_STREAM):
            self._answered(frame.stream)
        if self._streams.leave(frame, time.monotonic()):
            self._host.closed(self, 1)
        return True

    @property
    def streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    def overdue(self) -> str:
        """Why it has to end: a request or a reply waits for the caller for too long. Empty if none does, and
        while frames of the caller wait here for room."""
        now = time.monotonic()
        if self._inward.stopped and self._wait == ROOM_WAIT:
            self._streams.excuse(now)
            return ""
        return self._streams.overdue(now)

    # ------------------------------------------------------------ the end

    def end(self, why: str = "") -> None:
        """Close both ends; the caller is told why, if it is told anything, between two frames."""
        if self.ended:
            return
        self.ended = True
        for stream in tuple(self._sent):
            self._answered(stream)
        self._host.closed(self, len(self._streams))
        for timer in (self._timer, self._stuck):
            if timer is not None:
                timer.cancel()
        if self._inner is None:
            self.outer.abort()
        else:
            if why and self._outward.between:
                self.outer.write(goaway(why))
            self._inner.close()
            self.outer.close()
        self._host.left(self)


class Upstream(asyncio.Protocol):
    """gRPC's end of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        if not self._connection.ended:
            self._connection.say(data)

    def pause_writing(self) -> None:
        """gRPC reads slowly: the caller has to wait."""
        self._connection.stop_reading()

    def resume_writing(self) -> None:
        self._connection.read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """gRPC has ended the connection, for a reason that it has told the caller."""
        self._connection.end()

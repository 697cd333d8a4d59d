"""The open streams of one HTTP/2 connection, and which of them wait for their client (RFC 9113, 5 and 6.9).

A stream is open from its first HEADERS frame until a frame with END_STREAM has gone to the client, or an
RST_STREAM frame has gone either way. Two sorts of open streams wait for the client:

- the request is not complete: no frame of the client had END_STREAM;
- the reply has begun, and the client grants no flow-control window for the rest of it. gRPC sends all that
  a window allows at once, so a window that stays small means that bytes are left, and one that is open that
  none are: a watch without events waits for nobody.

Such a stream has to move `LEAST_BYTES` in every `STUCK_SECONDS`, so that a window of one byte now and then is
no progress. TCP's own back pressure says nothing of it: whoever grants no window may read all that is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil_server.front.frames import (
    ACK,
    DATA,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
)

STUCK_SECONDS = 60.0
LEAST_BYTES = 64 * 1024  # moved in that time: 9 kbit/s
OPEN_WINDOW = 16 * 1024  # gRPC's own clients grant 64 KiB and more
FIRST_WINDOW = 65_535
MOST_WINDOW = 2**31 - 1
INITIAL_WINDOW_SIZE = 4
UNREAD, UNFINISHED = "unread", "unfinished"


class Misframed(Exception):
    """The client sent a frame that no client of HTTP/2 may send."""


@dataclass(slots=True, kw_only=True)
class Stream:
    """`window` is what the client granted beyond its initial window, less what was sent; `moved` the bytes of
    DATA since the moment `since`."""

    since: float
    window: int = 0
    requested: bool = False  # the whole request has passed
    answered: bool = False  # the reply has begun
    moved: int = 0


class Streams:
    """Those of one connection."""

    def __init__(self) -> None:
        self._open: dict[int, Stream] = {}
        self._last = 0
        self._initial = self._window = FIRST_WINDOW

    def __len__(self) -> int:
        return len(self._open)

    def unanswered(self, number: int) -> bool:
        """Whether the stream is open and its reply has not begun."""
        return number in self._open and not self._open[number].answered

    def new(self, frame: Frame) -> bool:
        """Whether a frame of the client opens a stream."""
        return frame.kind == HEADERS and frame.stream > self._last

    def enter(self, frame: Frame, now: float) -> bool:
        """Note a frame of the client; whether it opens a stream.

        Raises:
            Misframed: it must not pass.
        """
        if frame.kind == HEADERS:
            return self._headers(frame, now)
        if frame.kind == DATA:
            self._request(frame)
        elif frame.kind == SETTINGS and not frame.flags & ACK:
            self._settings(frame)
        elif frame.kind == WINDOW_UPDATE:
            self._update(frame)
        return False

    def take_back(self, number: int) -> bool:
        """The client resets a stream; whether it was open."""
        return self._open.pop(number, None) is not None

    def _headers(self, frame: Frame, now: float) -> bool:
        opens = self.new(frame)
        if frame.stream % 2 == 0 or not (opens or frame.stream in self._open):
            raise Misframed
        if opens:
            self._last = frame.stream
            self._open[frame.stream] = Stream(since=now)
        self._request(frame)
        return opens

    def _request(self, frame: Frame) -> None:
        """HEADERS, DATA or trailers."""
        if (found := self._open.get(frame.stream)) is not None:
            found.moved += frame.length if frame.kind == DATA else 0
            found.requested |= bool(frame.flags & END_STREAM)

    def _settings(self, frame: Frame) -> None:
        if len(frame.payload) != frame.length or frame.length % 6:
            raise Misframed
        for at in range(0, frame.length, 6):
            name, value = frame.number(at, 2), frame.number(at + 2, 4)
            if name == INITIAL_WINDOW_SIZE:
                if value > MOST_WINDOW:
                    raise Misframed
                self._initial = value  # also of the streams that are open

    def _update(self, frame: Frame) -> None:
        more = frame.number(0, 4) & MOST_WINDOW if len(frame.payload) == frame.length == 4 else 0
        found = self._open.get(frame.stream)
        if not frame.stream:
            self._window += more
        elif found is not None:
            found.window += more
        widest = max(self._window, found.window + self._initial if found is not None else 0)
        if not more or widest > MOST_WINDOW:
            raise Misframed

    def leave(self, frame: Frame, now: float) -> bool:
        """Note a frame of gRPC; whether it closes a stream."""
        found = self._open.get(frame.stream)
        if frame.kind == DATA:
            self._window -= frame.length
        if found is None or frame.kind not in (DATA, HEADERS, RST_STREAM):
            return False
        if frame.kind == DATA:
            found.window -= frame.length
            found.moved += frame.length
        elif not found.answered:
            found.answered, found.since, found.moved = True, now, 0
        if ended := frame.kind == RST_STREAM or bool(frame.flags & END_STREAM):
            del self._open[frame.stream]
        return ended

    def overdue(self, now: float) -> str:
        """Why the connection has to end: a stream waited for the client for too long. Empty if none did."""
        for found in self._open.values():
            if found.moved >= LEAST_BYTES or not self._waits(found):
                found.since, found.moved = now, 0
            elif now - found.since > STUCK_SECONDS:
                return UNREAD if found.requested else UNFINISHED
        return ""

    def excuse(self, now: float) -> None:
        """Until now no stream waited for the client: what it sent is held back for want of room."""
        for found in self._open.values():
            found.since, found.moved = now, 0

    def _waits(self, found: Stream) -> bool:
        if not (found.requested and found.answered):
            return not found.requested
        return min(self._window, self._initial + found.window) < OPEN_WINDOW

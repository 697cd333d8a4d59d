"""HTTP/2 connection of a client: its frames, and its open streams that wait for the client (RFC 9113). Only
payloads of SETTINGS and WINDOW_UPDATE frames are read (section 4.1): they state how much a client is ready to
receive. `Http2Streams` states the cases in which a stream waits for its client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

HEAD_BYTES = 9
PREFACE_BYTES = 24  # sent by a client before its first frame
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM = ACK = 0x1
ENHANCE_YOUR_CALM = 0xB
MOST_PAYLOAD_BYTES = 1024  # of a frame whose payload is read; 170 settings


class Http2Frame(NamedTuple):
    """`payload` is empty for all kinds but SETTINGS and WINDOW_UPDATE of at most `MOST_PAYLOAD_BYTES`."""

    kind: int
    flags: int
    stream: int
    length: int
    payload: bytes = b""

    def number(self, at: int, size: int) -> int:
        """Return the unsigned number of `size` bytes at byte `at` of the payload."""
        return int.from_bytes(self.payload[at : at + size], "big")


MayPass = Callable[[Http2Frame], bool]  # returns True if a frame may pass


class FrameFilter:
    """Frames of one direction of a connection, delayed until they may pass."""

    def __init__(self, may_pass: MayPass, preface: int = 0) -> None:
        self._may_pass = may_pass
        self._bytes_left = preface  # bytes left of the frame that is passing
        self._buffer = b""
        self._at = 0  # bytes of it that have passed
        self.stopped = False  # by a frame that may not pass yet

    @property
    def at_boundary(self) -> bool:
        """True between two frames, where another frame may be inserted."""
        return not self._bytes_left

    def feed(self, data: bytes) -> None:
        self._buffer = self._buffer[self._at :] + data if self._buffer else data
        self._at = 0

    def data_to_send(self) -> bytes:
        """Return the bytes that may pass now. A blocked frame also blocks all that follow."""
        buffer, at = self._buffer, self._at
        while True:
            step = min(self._bytes_left, len(buffer) - at)
            at += step
            self._bytes_left -= step
            if self._bytes_left or len(buffer) - at < HEAD_BYTES:
                break
            frame = _frame(buffer, at)
            if frame is None:
                break
            self.stopped = not self._may_pass(frame)
            if self.stopped:
                break
            self._bytes_left = HEAD_BYTES + frame.length
        passed = buffer[self._at : at]  # usually the whole buffer, which Python does not copy
        self._buffer, self._at = (buffer, at) if at < len(buffer) else (b"", 0)
        return passed


def _frame(buffer: bytes, at: int) -> Http2Frame | None:
    """Return the frame that begins at byte `at`; None if a part of its payload is missing."""
    kind, flags, length = buffer[at + 3], buffer[at + 4], int.from_bytes(buffer[at : at + 3], "big")
    stream = int.from_bytes(buffer[at + 5 : at + HEAD_BYTES], "big") & 0x7FFFFFFF
    if kind not in (SETTINGS, WINDOW_UPDATE) or length > MOST_PAYLOAD_BYTES:
        return Http2Frame(kind, flags, stream, length)
    payload = buffer[at + HEAD_BYTES : at + HEAD_BYTES + length]
    return Http2Frame(kind, flags, stream, length, payload) if len(payload) == length else None


def goaway(reason: str) -> bytes:
    """Return the last frame for a peer that is cut off: ENHANCE_YOUR_CALM with the reason."""
    payload = bytes(4) + ENHANCE_YOUR_CALM.to_bytes(4, "big") + reason.encode()
    return len(payload).to_bytes(3, "big") + bytes((GOAWAY, 0)) + bytes(4) + payload


STUCK_SECONDS = 60.0
LEAST_BYTES = 64 * 1024  # moved in that time: 9 kbit/s
OPEN_WINDOW = 16 * 1024  # gRPC's own clients grant 64 KiB and more
FIRST_WINDOW = 65_535
MOST_WINDOW = 2**31 - 1
INITIAL_WINDOW_SIZE = 4
UNREAD, UNFINISHED = "unread", "unfinished"


class InvalidFrame(Exception):
    """The client sent a frame that violates HTTP/2."""


@dataclass(slots=True, kw_only=True)
class Http2Stream:
    """Open HTTP/2 stream. `window` is the window granted beyond the initial one, less the bytes sent; `moved`
    counts the bytes of DATA since the time `since`."""

    since: float
    window: int = 0
    requested: bool = False  # the request is complete
    answered: bool = False  # the reply has begun
    moved: int = 0


class Http2Streams:
    """Open streams of one connection.

    A stream is open from its first HEADERS frame until a frame with END_STREAM has been sent to the client,
    or an RST_STREAM frame either way (RFC 9113, 5 and 6.9). An open stream waits for the client in two cases:

    - The request is not complete: no frame of the client had END_STREAM.
    - The reply has begun, and the client grants no flow-control window for the rest of it. gRPC sends at once
      all that a window allows. So a small window means that bytes are left, and a large one that none are: a
      watch without events does not wait for its client.

    Such a stream must move `LEAST_BYTES` in every `STUCK_SECONDS`; a window of one byte now and then is not
    progress. TCP's back pressure does not show this: a client without a window may still read all that is
    sent."""

    def __init__(self) -> None:
        self._open: dict[int, Http2Stream] = {}
        self._last = 0
        self._initial = self._window = FIRST_WINDOW

    def __len__(self) -> int:
        return len(self._open)

    def unanswered(self, number: int) -> bool:
        """Return True if the stream is open and its reply has not begun."""
        return number in self._open and not self._open[number].answered

    def new(self, frame: Http2Frame) -> bool:
        """Return True if a frame of the client opens a stream."""
        return frame.kind == HEADERS and frame.stream > self._last

    def enter(self, frame: Http2Frame, now: float) -> bool:
        """Process a frame of the client, or raise InvalidFrame. Return True if it opens a stream."""
        opens = False
        if frame.kind == HEADERS:
            opens = self._headers(frame, now)
        if frame.kind in (HEADERS, DATA) and (found := self._open.get(frame.stream)) is not None:
            found.moved += frame.length if frame.kind == DATA else 0
            found.requested |= bool(frame.flags & END_STREAM)
        elif frame.kind == SETTINGS and not frame.flags & ACK:
            self._settings(frame)
        elif frame.kind == WINDOW_UPDATE:
            self._update(frame)
        return opens

    def cancel_stream(self, number: int) -> bool:
        """Close a stream that the client resets. Return False if it was not open."""
        return self._open.pop(number, None) is not None

    def _headers(self, frame: Http2Frame, now: float) -> bool:
        opens = self.new(frame)
        if frame.stream % 2 == 0 or not (opens or frame.stream in self._open):
            raise InvalidFrame
        if opens:
            self._last = frame.stream
            self._open[frame.stream] = Http2Stream(since=now)
        return opens

    def _settings(self, frame: Http2Frame) -> None:
        if len(frame.payload) != frame.length or frame.length % 6:
            raise InvalidFrame
        for at in range(0, frame.length, 6):
            name, value = frame.number(at, 2), frame.number(at + 2, 4)
            if name == INITIAL_WINDOW_SIZE:
                if value > MOST_WINDOW:
                    raise InvalidFrame
                self._initial = value  # also applies to open streams

    def _update(self, frame: Http2Frame) -> None:
        more = frame.number(0, 4) & MOST_WINDOW if len(frame.payload) == frame.length == 4 else 0
        found = self._open.get(frame.stream)
        if not frame.stream:
            self._window += more
        elif found is not None:
            found.window += more
        widest = max(self._window, found.window + self._initial if found is not None else 0)
        if not more or widest > MOST_WINDOW:
            raise InvalidFrame

    def leave(self, frame: Http2Frame, now: float) -> bool:
        """Process a frame of gRPC. Return True if the frame closes a stream."""
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
        """Return the reason to close the connection if a stream waited too long for the client, or empty."""
        for found in self._open.values():
            if found.moved >= LEAST_BYTES or not self._waits_for_client(found):
                found.since, found.moved = now, 0
            elif now - found.since > STUCK_SECONDS:
                return UNREAD if found.requested else UNFINISHED
        return ""

    def restart_timers(self, now: float) -> None:
        """Restart all timeouts: frames were delayed here, so no stream waited for the client."""
        for found in self._open.values():
            found.since, found.moved = now, 0

    def _waits_for_client(self, found: Http2Stream) -> bool:
        if not (found.requested and found.answered):
            return not found.requested
        return min(self._window, self._initial + found.window) < OPEN_WINDOW

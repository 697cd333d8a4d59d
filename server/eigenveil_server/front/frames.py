"""Where the frames of an HTTP/2 connection begin and end (RFC 9113, 4.1).

Of payloads only those of SETTINGS and WINDOW_UPDATE are looked at, which say what a client is ready to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

HEAD_BYTES = 9
PREFACE_BYTES = 24  # what a client says before its first frame
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM = ACK = 0x1
ENHANCE_YOUR_CALM = 0xB
MOST_PAYLOAD_BYTES = 1024  # of a frame whose payload is looked at; 170 settings


class Frame(NamedTuple):
    """`payload` is empty for all kinds but SETTINGS and WINDOW_UPDATE, and for those beyond
    `MOST_PAYLOAD_BYTES`."""

    kind: int
    flags: int
    stream: int
    length: int
    payload: bytes = b""

    def number(self, at: int, size: int) -> int:
        """The unsigned number of `size` bytes at byte `at` of the payload."""
        return int.from_bytes(self.payload[at : at + size], "big")


Pass = Callable[[Frame], bool]  # whether a frame that is about to pass may


class Frames:
    """One direction of a connection: holds back what may not pass yet."""

    def __init__(self, may_pass: Pass, preface: int = 0) -> None:
        self._may_pass = may_pass
        self._rest = preface  # bytes left of what passes at the moment
        self._held = b""
        self._at = 0  # what has passed of it
        self.stopped = False  # at a frame that may not pass yet

    @property
    def between(self) -> bool:
        """Whether what has passed ends with a frame, so that another may be put in."""
        return not self._rest

    def keep(self, data: bytes) -> None:
        self._held = self._held[self._at :] + data if self._held else data
        self._at = 0

    def cut(self) -> bytes:
        """What may pass now of what is held back. Nothing passes a frame that may not."""
        held, at = self._held, self._at
        while True:
            step = min(self._rest, len(held) - at)
            at += step
            self._rest -= step
            if self._rest or len(held) - at < HEAD_BYTES:
                break
            frame = _frame(held, at)
            if frame is None:
                break
            self.stopped = not self._may_pass(frame)
            if self.stopped:
                break
            self._rest = HEAD_BYTES + frame.length
        passed = held[self._at : at]  # mostly all of it, which Python does not copy
        self._held, self._at = (held, at) if at < len(held) else (b"", 0)
        return passed


def _frame(held: bytes, at: int) -> Frame | None:
    """The frame that begins at byte `at`; None if more of its payload has to come first."""
    kind, flags, length = held[at + 3], held[at + 4], int.from_bytes(held[at : at + 3], "big")
    stream = int.from_bytes(held[at + 5 : at + HEAD_BYTES], "big") & 0x7FFFFFFF
    if kind not in (SETTINGS, WINDOW_UPDATE) or length > MOST_PAYLOAD_BYTES:
        return Frame(kind, flags, stream, length)
    payload = held[at + HEAD_BYTES : at + HEAD_BYTES + length]
    return Frame(kind, flags, stream, length, payload) if len(payload) == length else None


def goaway(reason: str) -> bytes:
    """The last frame for a peer that is cut off: ENHANCE_YOUR_CALM and why."""
    payload = bytes(4) + ENHANCE_YOUR_CALM.to_bytes(4, "big") + reason.encode()
    return len(payload).to_bytes(3, "big") + bytes((GOAWAY, 0)) + bytes(4) + payload

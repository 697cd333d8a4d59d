"""Where the frames of an HTTP/2 connection begin and end (RFC 9113, 4.1). Payloads are not looked at."""

from __future__ import annotations

from collections.abc import Callable

HEAD_BYTES = 9
PREFACE_BYTES = 24  # what a client says before its first frame
DATA, HEADERS, RST_STREAM, GOAWAY = 0, 1, 3, 7
ENHANCE_YOUR_CALM = 0xB

# Kind, stream and payload length of a frame that is about to pass; whether it may.
Pass = Callable[[int, int, int], bool]


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
            length = int.from_bytes(held[at : at + 3], "big")
            stream = int.from_bytes(held[at + 5 : at + HEAD_BYTES], "big") & 0x7FFFFFFF
            self.stopped = not self._may_pass(held[at + 3], stream, length)
            if self.stopped:
                break
            self._rest = HEAD_BYTES + length
        passed = held[self._at : at]  # mostly all of it, which Python does not copy
        self._held, self._at = (held, at) if at < len(held) else (b"", 0)
        return passed


def goaway(reason: str) -> bytes:
    """The last frame for a peer that is cut off: ENHANCE_YOUR_CALM and why."""
    payload = bytes(4) + ENHANCE_YOUR_CALM.to_bytes(4, "big") + reason.encode()
    return len(payload).to_bytes(3, "big") + bytes((GOAWAY, 0)) + bytes(4) + payload

"""What a coordinator and its follower say through pipes: words as JSON, and bytes as they are."""

from __future__ import annotations

import json
import struct
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

LENGTHS = struct.Struct(">QQ")  # bytes of words, of data
Octets = NDArray[np.uint8]
Message = tuple[dict[str, Any], Octets]


def write(stream: IO[bytes], words: dict[str, Any], data: bytes | memoryview = b"") -> None:
    """Say it; `data` is not copied."""
    said = json.dumps(words).encode()
    stream.write(LENGTHS.pack(len(said), len(data)) + said)
    stream.write(data)
    stream.flush()


def read(stream: IO[bytes]) -> Message | None:
    """The next message, whose data can never change; None at the end."""
    head = stream.read(LENGTHS.size)
    if len(head) < LENGTHS.size:
        return None
    words, bytes_ = LENGTHS.unpack(head)
    said, data = stream.read(words), np.empty(bytes_, dtype=np.uint8)
    if len(said) < words or stream.readinto(data) < bytes_:  # type: ignore[attr-defined]
        return None
    data.setflags(write=False)
    return json.loads(said), data

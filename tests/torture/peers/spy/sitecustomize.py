"""Put in front of every process of the check of patient markers: all that a process could let slip, it does.

Every logger speaks at DEBUG, every message is written down before it is encrypted, and while the file
`raise` is there, opening the records fails with an error that quotes them."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import grpc
from grpc.aio import _channel

FOLDER = Path(os.environ["EIGENVEIL_SPY"])
WIRE = FOLDER / f"wire-{os.getpid()}"


def _speak_up() -> None:
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    inner = logging.Logger.setLevel
    logging.Logger.setLevel = lambda self, level: inner(self, logging.DEBUG)  # type: ignore[method-assign]


def _noted(data: bytes) -> bytes:
    with WIRE.open("ab") as file:
        file.write(data)
    return data


def _tap(owner: Any, name: str, writes: str, reads: str) -> None:
    """Have what a method of grpc is given to write and to read messages with write them down as well."""
    inner = getattr(owner, name)

    def tapped(*args: Any, **kwargs: Any) -> Any:
        write, read = kwargs.get(writes), kwargs.get(reads)
        if write is not None:
            kwargs[writes] = lambda message: _noted(write(message))
        if read is not None:
            kwargs[reads] = lambda data: read(_noted(data))
        return inner(*args, **kwargs)

    setattr(owner, name, tapped)


def _quote(event: str, arguments: tuple[Any, ...]) -> None:
    """An error of the worst kind, from the deepest place: it quotes the line that it failed at."""
    opened = str(arguments[0]) if event == "open" and arguments else ""
    if opened.endswith(".csv") and "/sites/" in opened and (FOLDER / "raise").exists():
        handle = os.open(opened + ".copy", os.O_RDONLY)
        try:
            raise ValueError(f"cannot make sense of {os.read(handle, 4000).decode(errors='replace')}")
        finally:
            os.close(handle)


_speak_up()
for kind in ("unary_unary", "unary_stream"):
    _tap(_channel.Channel, kind, "request_serializer", "response_deserializer")
    _tap(grpc, f"{kind}_rpc_method_handler", "response_serializer", "request_deserializer")
sys.addaudithook(_quote)

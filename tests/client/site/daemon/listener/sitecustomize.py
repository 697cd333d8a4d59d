"""Notes every address that Python code of this process binds, connects to or looks up."""

from __future__ import annotations

import os
import sys
from typing import Any

NOTES = os.environ["EIGENVEIL_SOCKETS"]
KINDS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto")


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in KINDS:
        handle = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(
            handle, f"{event} {arguments[1:] if event != 'socket.getaddrinfo' else arguments}\n".encode()
        )
        os.close(handle)


sys.addaudithook(_note)

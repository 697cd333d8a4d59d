"""The lock of a coordinator's folder: only one process serves it, or does what no server may run beside."""

from __future__ import annotations

import fcntl
from typing import IO

from eigenveil.errors import Code, RequestError
from eigenveil_server.config import Config


def only_one(config: Config) -> IO[bytes]:
    """Hold the folder's lock until the process ends, however it ends."""
    try:
        file = config.files.lock.open("wb")
    except OSError as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"cannot write in {config.files.folder}: {problem.strerror}"
        ) from problem
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        file.close()
        raise RequestError(
            Code.CONFLICT, f"another coordinator serves {config.files.folder}; stop it first"
        ) from problem
    return file

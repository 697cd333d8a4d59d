"""The lock of a coordinator's folder: only one process serves it, or does what no server may run beside."""

from __future__ import annotations

from typing import IO

from eigenveil.errors import Code, RequestError
from eigenveil_common.locks import try_lock
from eigenveil_server.config import Config


def only_one(config: Config) -> IO[bytes]:
    """Hold the folder's lock until the process ends, however it ends.

    Raises:
        RequestError: code `conflict`, another process holds it.
        InternalError: code `storage`.
    """
    file = try_lock(config.files.lock)
    if file is None:
        raise RequestError(Code.CONFLICT, f"another coordinator serves {config.files.folder}; stop it first")
    return file

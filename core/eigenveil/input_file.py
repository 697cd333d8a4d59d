"""Content of a file that a caller of the library names: a release or a prior. The only module of core that
reads files."""

from __future__ import annotations

import os

from eigenveil.errors import Code, RequestError


def file_bytes(source: str | os.PathLike[str] | bytes, most: int = -1) -> bytes:
    """Return the content of a file, or its first `most` bytes; or the bytes themselves. Raises RequestError:
    code `bad-argument`."""
    if isinstance(source, bytes):
        return source
    try:
        with open(source, "rb") as file:
            return file.read(most)
    except OSError as problem:
        why = problem.strerror or "it cannot be read"
        raise RequestError(Code.BAD_ARGUMENT, f"{os.fspath(source)}: {why}") from problem

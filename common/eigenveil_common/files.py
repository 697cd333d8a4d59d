"""Files that outlive a crash, and secrets that nobody else can read."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from pathlib import Path

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.failpoints import failpoint


def write_durably(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `data` in one step that survives a power cut (write, sync, rename, sync).

    Raises:
        InternalError: code `storage`; then `path` may hold either.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            failpoint("file-replacing")
            os.replace(temporary, path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as problem:
        raise InternalError(Code.STORAGE, f"cannot write {path}: {problem}") from problem


def write_secret(path: Path, data: bytes) -> None:
    """`write_durably`, readable by the owner only."""
    write_durably(path, data, mode=0o600)


def read_secret(path: Path) -> bytes:
    """The content of a secret file.

    Raises:
        RequestError: missing, or others may read it.
    """
    data = read(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise RequestError(Code.BAD_CONFIG, f"{path} can be read by others; run: chmod 600 {path}")
    return data


def check_owner(folder: Path) -> None:
    """Insist that root does not work in another user's folder: what it made there would lock the daemon out.

    Raises:
        RequestError: code `bad-config`.
    """
    owner = folder.stat().st_uid
    if os.geteuid() == 0 != owner:
        name = _user(owner)
        raise RequestError(
            Code.BAD_CONFIG, f"{folder} belongs to {name}; run this as that user: sudo -u {name} ..."
        )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"#{number}"


def read(path: Path) -> bytes:
    """The content of a file.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {problem.strerror}") from problem


def sync(path: Path) -> None:
    """Make sure that a file and its name outlive a power cut."""
    _sync_folder(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

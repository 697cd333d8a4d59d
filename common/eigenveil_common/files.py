"""Files that survive a crash, secret files that only their owner can read, and failpoints for tests."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from eigenveil.errors import Code, InternalError, RequestError

_actions: dict[str, Callable[[], None]] = {}


def failpoint(name: str) -> None:
    """Run the action that `name` was armed with; none in production. A test can end this process there, like
    a power cut or the kernel. Only `arm` in this process arms one: no command, configuration or environment
    variable does, as a repository test checks."""
    if name in _actions:
        _actions[name]()


def arm(name: str, action: Callable[[], None]) -> None:
    """Call `action` whenever a thread passes `name`, on that thread."""
    _actions[name] = action


def disarm() -> None:
    _actions.clear()


MIB, MOST_MIB = 2**20, 1024  # largest file that is read whole; a wide release has some hundred MiB
# Windows has no POSIX owners and modes: there the user's own folder protects files, and the file system makes
# names durable.
HAS_FILE_OWNERS = hasattr(os, "geteuid")

ADVICE = {
    errno.ENOENT: "make its folder first",
    errno.ENOTDIR: "a part of this path is a file; name another path",
    errno.EEXIST: "a file with this name exists; name another path",
    errno.EISDIR: "this is a folder; name a file in it",
    errno.EACCES: "name a place where you may write",
    errno.EPERM: "name a place where you may write",
    errno.EROFS: "name a place where you may write",
    errno.ENOSPC: "make room on the disk",
    errno.ELOOP: "it is a link; remove it",
}


@contextmanager
def storage_errors(act: str, path: Path) -> Iterator[None]:
    """Turn an OSError within the block into an error with `path` and advice; temporary names are hidden."""
    try:
        yield
    except BlockingIOError:  # another process holds a lock: no failure
        raise
    except OSError as problem:
        message = f"cannot {act} {path}: {problem.strerror or problem}"
        advice = ADVICE.get(problem.errno or 0)
        raise InternalError(Code.STORAGE, f"{message}; {advice}" if advice else message) from problem


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {problem.strerror}") from problem


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents; an existing folder is not changed."""
    with storage_errors("make", path):
        path.mkdir(mode=mode, parents=True, exist_ok=True)


def path_exists(path: Path) -> bool:
    """Return True if `path` exists. Raises InternalError, code `storage`, if it cannot be accessed."""
    with storage_errors("look at", path):
        return path.exists()


def is_occupied(folder: Path) -> bool:
    """Return True if `folder` exists and is not an empty folder."""
    with storage_errors("look into", folder):
        return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def check_output(path: Path, *inputs: Path) -> None:
    """Check that a file can be written at `path` and replaces none of `inputs`, before irreversible work."""
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise RequestError(Code.CONFLICT, f"{path} would replace what it is made of; name another file")
    with storage_errors("write", path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            return


def check_new(path: Path) -> None:
    """Check that a new file can be written at `path`. Raises RequestError, code `conflict`, if it exists."""
    if path_exists(path):
        raise RequestError(Code.CONFLICT, f"{path} exists already; name another file")
    check_output(path)


def write_durably(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace the content of `path` by `data` atomically and durably (write, sync, rename, sync). Raises
    InternalError: code `storage`; `path` then holds the old or the new content."""
    with storage_errors("write", path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                if HAS_FILE_OWNERS:
                    os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            failpoint("file-replacing")
            os.replace(temporary, path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync(path.parent)


def write_secret(path: Path, data: bytes) -> None:
    """Write a file with `write_durably`, readable by the owner only."""
    write_durably(path, data, mode=0o600)


def read_secret(path: Path) -> bytes:
    """Return the content of a secret file. The opened file itself is checked, and links are refused. Raises
    RequestError: missing, a link, owned by another user, or readable by others (where files have modes)."""
    if not HAS_FILE_OWNERS:
        return read(path)
    try:
        # O_NONBLOCK: opening a named pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        link = problem.errno == errno.ELOOP
        why = "the path is or contains a link; put the file itself there" if link else problem.strerror
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {why}") from problem
    with os.fdopen(handle, "rb") as file, _read_errors(path):
        _check_secret(path, os.fstat(handle))
        return file.read()


def _check_secret(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise RequestError(Code.BAD_CONFIG, f"{path} is not a regular file; put the file itself there")
    if os.geteuid() and found.st_uid not in (os.geteuid(), 0):
        raise RequestError(
            Code.BAD_CONFIG,
            f"{path} belongs to {user_name(found.st_uid)}, who can change it; run: "
            f"sudo chown {user_name(os.geteuid())} {shlex.quote(str(path))}",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise RequestError(
            Code.BAD_CONFIG, f"{path} can be read by others; run: chmod 600 {shlex.quote(str(path))}"
        )


FileVersion = tuple[int, ...]


def file_version(path: str) -> FileVersion | None:
    """Return a value that differs after the file or link at `path` was replaced, written or given another
    mode or owner; None if there is none. What is read after it is as new, or newer. Raises InternalError:
    code `storage`."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError:
        with storage_errors("read", Path(path)):
            raise
    owner, times = (found.st_mode, found.st_uid), (found.st_mtime_ns, found.st_ctime_ns)
    return (found.st_dev, found.st_ino, found.st_size, *owner, *times)


def check_owner(folder: Path) -> None:
    """Refuse to run as root in another user's folder: files made there would lock the daemon out."""
    owner = folder.stat().st_uid
    if HAS_FILE_OWNERS and os.geteuid() == 0 != owner:
        name = user_name(owner)
        raise RequestError(
            Code.BAD_CONFIG, f"{folder} belongs to {name}; run this as that user: sudo -u {name} ..."
        )


def user_name(number: int) -> str:
    """Return a user's name; #NUMBER for an unknown user."""
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"#{number}"


def read(path: Path) -> bytes:
    """Return the content of a file, such as a key, a configuration or a release; never of records."""
    with _read_errors(path), path.open("rb") as file:
        parts: list[bytes] = []
        while (part := file.read(MIB)) and len(parts) < MOST_MIB:
            parts.append(part)
    if part:
        raise RequestError(Code.BAD_CONFIG, f"{path} has over {MOST_MIB} MiB; is this the right file?")
    return b"".join(parts)


def read_text(path: Path) -> str:
    """Return the text of a file."""
    try:
        return read(path).decode()
    except UnicodeDecodeError as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, f"{path} is not UTF-8 text; is this the right file?"
        ) from problem


def sync(path: Path) -> None:
    """Make a file and its name durable."""
    for one in (path, path.parent):
        _sync(one)


def _sync(path: Path) -> None:
    if HAS_FILE_OWNERS:  # Windows cannot open a folder
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

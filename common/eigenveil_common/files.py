"""Files that outlive a crash, and secrets that nobody else can read."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil_common.failpoints import failpoint

# Of files, that is, and of processes. Windows has none of the kind: there a folder within the user's own is
# what keeps others away, and the names in a folder are its file system's own affair.
MIB, MOST_MIB = 2**20, 1024  # of a file that is read whole: a wide release has some hundred
HAS_OWNERS = hasattr(os, "geteuid")

ADVICE = {
    errno.ENOENT: "make its folder first",
    errno.ENOTDIR: "a part of this path is a file; name another",
    errno.EEXIST: "a file is in its place; name another",
    errno.EISDIR: "this is a folder; name a file in it",
    errno.EACCES: "name a place where you may write",
    errno.EPERM: "name a place where you may write",
    errno.EROFS: "name a place where you may write",
    errno.ENOSPC: "make room",
    errno.ELOOP: "a link is in its place; remove it",
}


def cannot(act: str, path: Path, problem: OSError) -> InternalError:
    """What the system refused, of which path, and what to do; without the names of our temporary files."""
    advice = ADVICE.get(problem.errno or 0, "")
    said = f"cannot {act} {path}: {problem.strerror or problem}"
    return InternalError(Code.STORAGE, f"{said}; {advice}" if advice else said)


@contextmanager
def doing(act: str, path: Path) -> Iterator[None]:
    """Turn what the system refuses meanwhile into `cannot`."""
    try:
        yield
    except OSError as problem:
        raise cannot(act, path, problem) from problem


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder, and those above it; one that is there stays as it is.

    Raises:
        InternalError: code `storage`.
    """
    with doing("make", path):
        path.mkdir(mode=mode, parents=True, exist_ok=True)


def is_there(path: Path) -> bool:
    """Whether there is anything at `path`.

    Raises:
        InternalError: code `storage`, the way there may not be looked into.
    """
    with doing("look at", path):
        return path.exists()


def occupied(folder: Path) -> bool:
    """Whether there is something else than an empty folder at `folder`.

    Raises:
        InternalError: code `storage`, it may not be looked into.
    """
    with doing("look into", folder):
        return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def check_output(path: Path, *inputs: Path) -> None:
    """See that a file can be written at `path`, before anything that takes long or cannot be undone.

    Raises:
        InternalError: code `storage`, it cannot.
        RequestError: it would replace one of `inputs`.
    """
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise RequestError(Code.CONFLICT, f"{path} would replace what it is made of; name another file")
    with doing("write", path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            return


def check_new(path: Path) -> None:
    """`check_output` of a file that is not there yet. Raises RequestError, code `conflict`, if it is."""
    if is_there(path):
        raise RequestError(Code.CONFLICT, f"{path} exists already; name another file")
    check_output(path)


def write_durably(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `data` in one step that survives a power cut (write, sync, rename, sync).

    Raises:
        InternalError: code `storage`; then `path` may hold either.
    """
    with doing("write", path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                if HAS_OWNERS:
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


def write_secret(path: Path, data: bytes) -> None:
    """`write_durably`, readable by the owner only."""
    write_durably(path, data, mode=0o600)


def read_secret(path: Path) -> bytes:
    """The content of a secret file; what is looked at is what was opened, and no link leads there.

    Raises:
        RequestError: missing, a link, another user's, or others may read it, where modes of files say so.
    """
    if not HAS_OWNERS:
        return read(path)
    try:
        # A pipe in its place would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        link = problem.errno == errno.ELOOP
        why = "it is a link, or a link is on the way; put the file itself there" if link else problem.strerror
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {why}") from problem
    with os.fdopen(handle, "rb") as file, _reading(path):
        _check_secret(path, os.fstat(handle))
        return file.read()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {problem.strerror}") from problem


def _check_secret(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise RequestError(Code.BAD_CONFIG, f"{path} is not a file; put the file itself there")
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


def check_owner(folder: Path) -> None:
    """Insist that root does not work in another user's folder: what it made there would lock the daemon out.

    Raises:
        RequestError: code `bad-config`.
    """
    owner = folder.stat().st_uid
    if HAS_OWNERS and os.geteuid() == 0 != owner:
        name = user_name(owner)
        raise RequestError(
            Code.BAD_CONFIG, f"{folder} belongs to {name}; run this as that user: sudo -u {name} ..."
        )


def user_name(number: int) -> str:
    """A user's name; #NUMBER for one that the system does not know."""
    import pwd  # which Windows does not have

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"#{number}"


def read(path: Path) -> bytes:
    """The content of a file: a key, a configuration, a release, and none of records.

    Raises:
        RequestError: it cannot be read, or is larger than such a file can be.
    """
    try:
        with path.open("rb") as file:
            parts: list[bytes] = []
            while (part := file.read(MIB)) and len(parts) < MOST_MIB:
                parts.append(part)
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {problem.strerror}") from problem
    if part:
        raise RequestError(Code.BAD_CONFIG, f"{path} has over {MOST_MIB} MiB; is it the file that is meant?")
    return b"".join(parts)


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        RequestError: it cannot be read, or is not UTF-8.
    """
    try:
        return read(path).decode()
    except UnicodeDecodeError as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, f"{path} is not UTF-8 text; is it the file you mean?"
        ) from problem


def sync(path: Path) -> None:
    """Make sure that a file and its name outlive a power cut."""
    _sync_folder(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if not HAS_OWNERS:  # nor can a folder be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

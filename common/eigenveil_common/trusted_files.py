"""Check of trusted files: only their owner and root may change them or a folder on their path.

A daemon trusts settings, authorities, peers, keys and its ledger because of their location. At each start:

- every such file, and every folder and link on its path, belongs to this user or to root; of a chain of links
  each link, with the folders on its own path;
- others and groups cannot write to any of them;
- except a private group of the owner: of the same name, with no other member, as `useradd` makes it (with
  such groups the usual umask is 002);
- and except a parent folder where only the owner of a file may remove it (sticky bit, like /tmp);
- none of these files is a link, because a link reads another file.

No file is opened: closing a descriptor of a database would release this process's locks on it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from eigenveil.errors import Code, RequestError
from eigenveil_common.files import HAS_FILE_OWNERS, user_name

# Endings of the trusted files in a folder; other files are not checked.
TRUSTED_SUFFIXES = (".json", ".toml", ".pem", ".key", ".draft", ".lock")
MOST_LINKS = 40  # most links that Linux follows on one path
BESIDE_DATABASE = ("", "-wal", "-shm", "-journal")


class TrustProblem(NamedTuple):
    """Problem with the owner or mode of a path, and the command that fixes it."""

    description: str
    todo: str

    def __str__(self) -> str:
        return f"{self.description}; run: {self.todo}"


def trusted_entries(folder: Path) -> list[Path]:
    """Return a folder and the trusted files in it, by their endings."""
    if not folder.is_dir():
        return []
    return [folder, *sorted(one for one in folder.iterdir() if one.name.endswith(TRUSTED_SUFFIXES))]


def database_files(database: Path) -> list[Path]:
    """Return the files of a SQLite database, with its temporary files."""
    return [database.with_name(database.name + end) for end in BESIDE_DATABASE]


def trust_problems(paths: Iterable[Path]) -> Iterator[TrustProblem]:
    """Yield the problems of `paths` and of their parent folders, each once."""
    if not HAS_FILE_OWNERS:
        return
    above = dict[Path, None]()
    listed = dict.fromkeys(path.absolute() for path in paths)
    for path in listed:
        above |= dict.fromkeys(_path_components(path))
        if path.is_symlink() and not path.is_dir():
            target = path.resolve()
            todo = f"rm {_quoted(path)} && cp -p {_quoted(target)} {_quoted(path)}"
            yield TrustProblem(f"{path} is a link to {target}", todo)
        else:
            yield from _mode_problems(path)
    for one in above:
        if one.is_symlink():
            yield from _owner_problems(one, one.lstat())
        elif one not in listed and one != one.parent:
            yield from _mode_problems(one, above=True)


def check_trusted(paths: Iterable[Path]) -> None:
    """Check that others cannot change `paths`."""
    for one in trust_problems(paths):
        raise RequestError(Code.BAD_CONFIG, str(one))


def _path_components(path: Path) -> Iterator[Path]:
    """Yield every folder and link on the absolute `path`, following `..` and links in order."""
    position, names, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    while names:
        name = names.pop()
        if name == os.pardir:
            position = position.parent
            continue
        yield position
        position /= name
        target = _target(position)
        if target is not None and links < MOST_LINKS:  # beyond this, `stat` reports an error
            yield position
            links += 1
            position = Path(target.anchor) if target.is_absolute() else position.parent
            names += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _target(path: Path) -> Path | None:
    try:
        return path.readlink()
    except OSError:  # not a link, missing or not accessible; `stat` reports the latter
        return None


def _mode_problems(path: Path, *, above: bool = False) -> Iterator[TrustProblem]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot look at {path}: {problem.strerror}") from problem
    yield from _owner_problems(path, found)
    writers = found.st_mode & 0o022
    if (above and found.st_mode & stat.S_ISVTX) or (writers == 0o020 and _has_private_group(found)):
        return
    if writers:
        yield TrustProblem(f"others can change {path}", f"chmod go-w {_quoted(path)}")


def _owner_problems(path: Path, found: os.stat_result) -> Iterator[TrustProblem]:
    """Yield the problems with the owner of `path`; in a sticky folder like /tmp the owner controls a link."""
    current_uid = os.geteuid()
    if found.st_uid not in (current_uid, 0):
        owner, also = user_name(found.st_uid), "-h " if path.is_symlink() else ""
        mended = f"sudo chown {also}{user_name(current_uid)} {_quoted(path)}"
        todo = mended if current_uid else f"this as that user, sudo -u {owner} ..."
        yield TrustProblem(f"{path} belongs to {owner}, who can change it", todo)


def _has_private_group(found: os.stat_result) -> bool:
    """Return True if a file's group is private: no other user has it as a member or as primary group."""
    import grp  # not on Windows
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    is_own_group = (group.gr_gid, group.gr_name) == (user.pw_gid, user.pw_name)
    no_other_user = all(one.pw_uid == user.pw_uid for one in pwd.getpwall() if one.pw_gid == group.gr_gid)
    return is_own_group and no_other_user and set(group.gr_mem) <= {user.pw_name}


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))

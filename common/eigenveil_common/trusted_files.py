"""Files that trust rests on: nobody but their owner and root may change them, or a folder on their way.

What a daemon believes (settings, authorities, peers, keys, its ledger) it believes because of where it lies.
So at each start:

- every such file, and every folder and link on the way to it, belongs to this user or to root: of a chain of
  links each one, with the folders on its own way;
- none of them may be written by others, nor by a group;
- but by a group that is its owner's own: of the same name, with nobody else in it, as `useradd` makes it
  (with such groups the usual umask is 002);
- and a folder further up by anybody, where only the owner of a file may remove it (the sticky bit, as of
  /tmp);
- none of these files is a link, which would have it read from elsewhere.

Nothing is opened: to close any descriptor of a database would drop the locks that this process has on it.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil_common.files import HAS_OWNERS, user_name

# Of a folder whose other files are nobody's concern here.
BELIEVED = (".json", ".toml", ".pem", ".key", ".draft", ".lock")
MOST_LINKS = 40  # of one path, as Linux follows them
BESIDE_DATABASE = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distrusted:
    """What is wrong with one path, which it names, and the command that mends it."""

    what: str
    todo: str

    def __str__(self) -> str:
        return f"{self.what}; run: {self.todo}"


def believed(folder: Path) -> list[Path]:
    """A folder of our own, and what lies in it that is believed, by its ending."""
    if not folder.is_dir():
        return []
    return [folder, *sorted(one for one in folder.iterdir() if one.name.endswith(BELIEVED))]


def database_files(database: Path) -> list[Path]:
    """The files of a database of SQLite, those that come and go as well."""
    return [database.with_name(database.name + end) for end in BESIDE_DATABASE]


def distrusted(paths: Iterable[Path]) -> Iterator[Distrusted]:
    """What is wrong with `paths`, and with the folders above them; each is told of once."""
    if not HAS_OWNERS:
        return
    above = dict[Path, None]()
    listed = dict.fromkeys(path.absolute() for path in paths)
    for path in listed:
        above |= dict.fromkeys(_way(path))
        if path.is_symlink() and not path.is_dir():
            target = path.resolve()
            todo = f"rm {_quoted(path)} && cp -p {_quoted(target)} {_quoted(path)}"
            yield Distrusted(what=f"{path} is a link to {target}", todo=todo)
        else:
            yield from _wrong(path)
    for one in above:
        if one.is_symlink():
            yield from _owned(one, one.lstat())
        elif one not in listed and one != one.parent:
            yield from _wrong(one, above=True)


def check_trusted(paths: Iterable[Path]) -> None:
    """Insist that nobody else can change `paths`.

    Raises:
        RequestError: code `bad-config`, naming the first that others can, and the command that mends it.
    """
    for one in distrusted(paths):
        raise RequestError(Code.BAD_CONFIG, str(one))


def _way(path: Path) -> Iterator[Path]:
    """Every folder and link that the system goes through to `path`, which is absolute: it follows `..` and
    the targets of links as it meets them."""
    place, names, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    while names:
        name = names.pop()
        if name == os.pardir:
            place = place.parent
            continue
        yield place
        place /= name
        target = _target(place)
        if target is not None and links < MOST_LINKS:  # beyond, `stat` says that it cannot be followed
            yield place
            links += 1
            place = Path(target.anchor) if target.is_absolute() else place.parent
            names += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _target(path: Path) -> Path | None:
    try:
        return path.readlink()
    except OSError:  # no link, not there, or not to be looked at, which `stat` says
        return None


def _wrong(path: Path, *, above: bool = False) -> Iterator[Distrusted]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot look at {path}: {problem.strerror}") from problem
    yield from _owned(path, found)
    writers = found.st_mode & 0o022
    if (above and found.st_mode & stat.S_ISVTX) or (writers == 0o020 and _private(found)):
        return
    if writers:
        yield Distrusted(what=f"others can change {path}", todo=f"chmod go-w {_quoted(path)}")


def _owned(path: Path, found: os.stat_result) -> Iterator[Distrusted]:
    """What is wrong with the owner of `path`: of a link in a folder for all, as /tmp, its owner disposes."""
    us = os.geteuid()
    if found.st_uid not in (us, 0):
        owner, also = user_name(found.st_uid), "-h " if path.is_symlink() else ""
        mended = f"sudo chown {also}{user_name(us)} {_quoted(path)}"
        todo = mended if us else f"this as that user, sudo -u {owner} ..."
        yield Distrusted(what=f"{path} belongs to {owner}, who can change it", todo=todo)


def _private(found: os.stat_result) -> bool:
    """Whether a file's group is its owner's own: nobody else is in it, neither as one of its members nor as a
    user whose group it is from the start."""
    import grp  # which Windows does not have
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    own = (group.gr_gid, group.gr_name) == (user.pw_gid, user.pw_name)
    alone = all(one.pw_uid == user.pw_uid for one in pwd.getpwall() if one.pw_gid == group.gr_gid)
    return own and alone and set(group.gr_mem) <= {user.pw_name}


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))

"""A disk that loses what was not synced: SQLite's files on it, and what is left of them after a power cut.

The files themselves lie in a real folder and show what the operating system would show a running process.
Beside them the disk keeps, for each file, what is certain to be on the platter and the list of what is
not: writes and truncations since the last sync of the file, and names that were made or removed since
the last sync of the folder. At the cut each of these survives or not, in any order; a write may be torn
at sectors, and what a file grew by without its data is zeros or rubbish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw

SECTOR = 512
TORN = 0.3  # of the writes are torn
# Files whose folder SQLite syncs together with their first sync (os_unix.c, UNIXFILE_DIRSYNC).
WITH_FOLDER = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
LIKELIHOODS = (0.0, 0.2, 0.5, 0.8, 1.0)  # that something unsynced survives


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    data: bytes

    def sectors(self) -> Iterator[Write]:
        start = 0
        while start < len(self.data):
            end = min(len(self.data), start + SECTOR - (self.offset + start) % SECTOR)
            yield Write(self.offset + start, self.data[start:end])
            start = end


@dataclass(frozen=True, slots=True)
class Truncate:
    size: int


@dataclass(slots=True)
class Content:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncate] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            apply(self.durable, change)
        self.pending.clear()

    def survived(self, random: Random) -> bytes:
        left, likely = bytearray(self.durable), random.choice(LIKELIHOODS)
        remaining = [piece for change in self.pending for piece in _pieces(change, likely, random)]
        if random.random() < 0.5:
            random.shuffle(remaining)
        for piece in remaining:
            if isinstance(piece, Write) and piece.offset > len(left):
                gap = piece.offset - len(left)
                left += bytes(gap) if random.random() < 0.5 else random.randbytes(gap)
            apply(left, piece)
        return bytes(left)


def apply(data: bytearray, change: Write | Truncate) -> None:
    """Do to `data` what was done to a file."""
    if isinstance(change, Truncate):
        del data[change.size :]
        data.extend(bytes(change.size - len(data)))
        return
    data.extend(bytes(max(0, change.offset - len(data))))
    data[change.offset : change.offset + len(change.data)] = change.data


def _pieces(change: Write | Truncate, likely: float, random: Random) -> list[Write | Truncate]:
    if isinstance(change, Write) and random.random() < TORN:
        return [sector for sector in change.sectors() if random.random() < likely]
    return [change] if random.random() < likely else []


@dataclass(slots=True)
class Disk:
    """One folder on such a disk. `calls` counts what changes it; at the `cut`-th such call the power goes,
    and every later call fails."""

    cut: int | None = None
    calls: int = 0
    off: bool = False
    names: dict[str, Content] = field(default_factory=dict)  # as a running process sees them
    durable: dict[str, Content] = field(default_factory=dict)
    moves: list[tuple[str, Content | None]] = field(default_factory=list)  # names since the folder's sync

    def change(self) -> None:
        self.alive()
        self.calls += 1
        if self.calls == self.cut:
            self.off = True
            self.alive()

    def alive(self) -> None:
        if self.off:
            raise apsw.IOError("the power is off")

    def content(self, name: str, exists: bool) -> tuple[Content, bool]:
        if name in self.names:
            return self.names[name], False
        content = self.names[name] = Content()
        if not exists:
            self.moves.append((name, content))
        return content, not exists

    def remove(self, name: str) -> None:
        del self.names[name]
        self.moves.append((name, None))

    def sync_folder(self) -> None:
        for name, content in self.moves:
            self._move(self.durable, name, content)
        self.moves.clear()

    @staticmethod
    def _move(names: dict[str, Content], name: str, content: Content | None) -> None:
        if content is None:
            names.pop(name, None)
        else:
            names[name] = content

    def survived(self, random: Random) -> dict[str, bytes]:
        """Every file that is left after a cut. Changes of one name come in order, so a first part of them
        survives; those of other names are independent."""
        names, likely = dict(self.durable), random.choice(LIKELIHOODS)
        lost: set[str] = set()
        for name, content in self.moves:
            if name not in lost and random.random() < likely:
                self._move(names, name, content)
            else:
                lost.add(name)
        return {name: content.survived(random) for name, content in sorted(names.items())}

    def load(self, folder: Path) -> None:
        """Take the files of `folder` as certain; a folder beside them holds none of SQLite's."""
        for path in filter(Path.is_file, folder.iterdir()):
            content = Content(durable=bytearray(path.read_bytes()))
            self.names[str(path)] = self.durable[str(path)] = content


class PowerVfs(apsw.VFS):
    """SQLite's way to a `Disk`, under `name`."""

    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self.disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """A file of the disk; one without a name is temporary and outlives nothing."""
        self.disk.alive()
        if name is None:
            return apsw.VFSFile("", name, flags)
        return PowerFile(self.disk, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        """Remove a name, certainly if `sync`."""
        self.disk.change()
        super().xDelete(name, False)
        self.disk.remove(name)
        if sync:
            self.disk.change()
            self.disk.sync_folder()

    def xAccess(self, path: str, flags: int) -> bool:
        self.disk.alive()
        return super().xAccess(path, flags)


class PowerFile(apsw.VFSFile):
    """One open file of a `Disk`."""

    def __init__(self, disk: Disk, name: str | apsw.URIFilename, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        exists = Path(path).exists()
        super().__init__("", name, flags)
        self.disk = disk
        self.content, made = disk.content(path, exists)
        self.new = made and bool(flags[0] & WITH_FOLDER)

    def xRead(self, amount: int, offset: int) -> bytes:
        self.disk.alive()
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self.disk.change()
        super().xWrite(data, offset)
        self.content.pending.append(Write(offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        self.disk.change()
        super().xTruncate(size)
        self.content.pending.append(Truncate(size))

    def xSync(self, flags: int) -> None:
        """Make the file certain; with its name, when it is new and SQLite would."""
        self.disk.change()
        self.content.sync()
        if self.new:
            self.disk.change()
            self.disk.sync_folder()
            self.new = False

    def xFileSize(self) -> int:
        self.disk.alive()
        return super().xFileSize()


@contextmanager
def powered(name: str, disk: Disk) -> Iterator[Disk]:
    """A disk that is known to SQLite under `name`."""
    vfs = PowerVfs(name, disk)
    try:
        yield disk
    finally:
        vfs.unregister()

"""What a reader process can be asked for, and what it then does: everything that opens a file of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records import profile as profiles
from eigenveil_client.records.apart.checked import MOST_NAMES
from eigenveil_client.records.genotypes.listed import listed
from eigenveil_client.records.overflow.scratch import Scratch
from eigenveil_client.records.quality import Bounds, Ranges
from eigenveil_client.records.records import Rules, stream
from eigenveil_client.records.sources.columnar import ParquetTable
from eigenveil_client.records.sources.opening import open_source
from eigenveil_client.records.tables.cells import Reading, Unreadable
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.records.tables.table import BadRecords

AT_ONCE = 64  # names in one frame
MEMORY, SURPRISE = "reader-memory", "reader"  # what errors of a reader are about that are none of a file's

Item = Callable[[Any], None]
Keep = Callable[[GridRows], None]


class Work(Protocol):
    """One thing to be done with `said`: its items and rows as they come, and what it ends with. All but rows
    is plain values, as JSON has them."""

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecords:
    """The records of a study, as `records.stream` says. Items are columns with bad cells; `tolerant` if those
    are told of and not refused."""

    study: Study
    rules: Rules
    plausible: Ranges
    tolerant: bool
    scratch: Scratch

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any:
        cells, first = Counter[str | None](), dict[str | None, Unreadable]()

        def tell(bad: Unreadable) -> None:
            cells[bad.column] += bad.cells
            if bad.column not in first or bad.first < first[bad.column].first:
                first[bad.column] = bad

        found = stream(
            said, self.study, keep, rules=self.rules, plausible=self.plausible,
            unreadable=tell if self.tolerant else None, scratch=self.scratch,
        )  # fmt: skip
        for column, one in first.items():
            item([column, cells[column], one.first, one.what])
        for good in found.quality:
            item([getattr(good, name) for name in COUNTS])
        return {"persons": found.persons, "file": found.file.hex()}


COUNTS = ("persons", "missing", "unreadable", "below", "above", "at_bound", "implausible")


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Whether the source can be opened, and nothing of it: a daemon starts with however many columns."""

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any:
        open_source(said).schema()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumns:
    """The names of the columns. It ends with how many Parquet files they are of, None if of another kind."""

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any:
        source = open_source(said)
        _tell_names(source.schema().names, said, item)
        if not isinstance(source, ParquetTable):
            return None
        for path in source.paths:
            item(str(path))
        return len(source.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Ends with the digest of all of the source."""

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any:
        return open_source(said).digest().hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a person finds rows, or (not whole) lines that are left out."""

    rows: tuple[tuple[int, bool], ...]

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any:
        source = open_source(said)
        for row, whole in self.rows:
            item(source.place(row, whole=whole))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileColumns:
    """A profile of each column."""

    rules: Rules
    columns: Mapping[str, Bounds | None]
    person: str | None

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any:
        reading = Reading(table=open_source(said), unreadable=lambda cells: None)
        for one in profiles.profile(reading, self.rules, self.columns, self.person):
            item(asdict(one))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListVariants:
    """The columns of a file of genotypes of which a study can ask; ends with how many variants are none."""

    path: Path

    def run(self, said: RecordsConfig, item: Item, keep: Keep) -> Any:
        found = listed(self.path)
        _tell_names(found.columns, self.path, item)
        return found.left_out


def _tell_names(names: Sequence[str], of: object, item: Item) -> None:
    if len(names) > MOST_NAMES:
        raise BadRecords(
            f"{of} has {len(names)} columns, over {MOST_NAMES}, too many to list; list those of a part of it"
        )
    for start in range(0, len(names), AT_ONCE):
        item(names[start : start + AT_ONCE])


AnyWork = Open | ReadRecords | ListColumns | Digest | Places | ProfileColumns | ListVariants


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A work, the folder in which relative paths begin, and what its process may take: bytes of memory,
    seconds of processor time, folders to write in, of which the last is for what has no other place, and
    settings of libpq where there is a database."""

    said: RecordsConfig
    work: AnyWork
    begins: Path
    memory: int
    seconds: float
    folders: Sequence[Path]
    environment: Mapping[str, str]

    @property
    def about(self) -> str:
        """What is read."""
        return str(self.work.path if isinstance(self.work, ListVariants) else self.said)

    @property
    def network(self) -> bool:
        """Whether it has to reach a database."""
        return self.said.source is None

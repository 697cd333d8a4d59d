"""Tasks of a reader process: everything that opens a file of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eigenveil.study.study import Study
from eigenveil_client.records import column_quality as profiles
from eigenveil_client.records.column_quality import Bounds, PlausibleRanges
from eigenveil_client.records.genotype_files import list_variants
from eigenveil_client.records.isolated.frames import MOST_NAMES
from eigenveil_client.records.records import RowSink, Rules, stream
from eigenveil_client.records.scratch_files import Scratch
from eigenveil_client.records.sources.columnar import ParquetTable
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.cells import Reading, Unreadable
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig

AT_ONCE = 64  # names in one frame
MEMORY, UNEXPECTED = "reader-memory", "reader"  # subjects of a reader's errors that do not concern a file

Item = Callable[[Any], None]


# A task has `run(config, item, sink)`: it sends items and rows, and returns a final value. All but rows are
# plain values, as JSON has them.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecords:
    """Read the records of a study with `records.stream`.

    Items are columns with bad cells, which are reported if `tolerant`, and otherwise an error."""

    study: Study
    rules: Rules
    plausible: PlausibleRanges
    tolerant: bool
    scratch: Scratch

    def run(self, config: RecordsConfig, item: Item, sink: RowSink) -> Any:
        cells, first = Counter[str | None](), dict[str | None, Unreadable]()

        def collect(bad: Unreadable) -> None:
            cells[bad.column] += bad.cells
            if bad.column not in first or bad.first < first[bad.column].first:
                first[bad.column] = bad

        found = stream(
            config, self.study, sink, rules=self.rules, plausible=self.plausible,
            unreadable=collect if self.tolerant else None, scratch=self.scratch,
        )  # fmt: skip
        for column, one in first.items():
            item([column, cells[column], one.first, one.what])
        for good in found.quality:
            item(list(good.counts.values()))
        return {"persons": found.persons, "file": found.file.hex()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSource:
    """Check that the source can be opened, whatever its number of columns."""

    def run(self, config: RecordsConfig, item: Item, sink: RowSink) -> Any:
        open_source(config).schema()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumns:
    """List the names of the columns. The final value is the number of Parquet files; None for other kinds."""

    def run(self, config: RecordsConfig, item: Item, sink: RowSink) -> Any:
        source = open_source(config)
        _send_names(source.schema().names, config, item)
        if not isinstance(source, ParquetTable):
            return None
        for path in source.paths:
            item(str(path))
        return len(source.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSource:
    """Return the digest of the whole source."""

    def run(self, config: RecordsConfig, item: Item, sink: RowSink) -> Any:
        return open_source(config).digest().hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateRows:
    """List the locations of rows, or (not whole) of lines that are left out."""

    rows: tuple[tuple[int, bool], ...]

    def run(self, config: RecordsConfig, item: Item, sink: RowSink) -> Any:
        source = open_source(config)
        for row, whole in self.rows:
            item(source.location(row, whole=whole))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileColumns:
    """Profile each column."""

    rules: Rules
    columns: Mapping[str, Bounds | None]
    person: str | None

    def run(self, config: RecordsConfig, item: Item, sink: RowSink) -> Any:
        reading = Reading(table=open_source(config), unreadable=lambda cells: None)
        for one in profiles.profile(reading, self.rules, self.columns, self.person):
            item(asdict(one))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListVariants:
    """List the columns of a file of genotypes that a study can use; return the number of variants left
    out."""

    path: Path

    def run(self, config: RecordsConfig, item: Item, sink: RowSink) -> Any:
        found = list_variants(self.path)
        _send_names(found.columns, self.path, item)
        return found.left_out


def _send_names(names: Sequence[str], of: object, item: Item) -> None:
    if len(names) > MOST_NAMES:
        raise BadRecords(
            f"{of} has {len(names)} columns, over {MOST_NAMES}, too many to list. List those of a part of it"
        )
    for start in range(0, len(names), AT_ONCE):
        item(names[start : start + AT_ONCE])


AnyTask = CheckSource | ReadRecords | ListColumns | DigestSource | LocateRows | ProfileColumns | ListVariants


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRequest:
    """Request to a reader process.

    `begins`: the folder for relative paths. `memory`: a limit in bytes. `seconds`: of processor time.
    `folders`: those to write in, the last for temporary files. `environment`: settings of libpq for a
    database."""

    config: RecordsConfig
    task: AnyTask
    begins: Path
    memory: int
    seconds: float
    folders: Sequence[Path]
    environment: Mapping[str, str]

    @property
    def about(self) -> str:
        """The source that is read."""
        return str(self.task.path if isinstance(self.task, ListVariants) else self.config)

    @property
    def network(self) -> bool:
        """True if the reader connects to a database."""
        return self.config.source is None

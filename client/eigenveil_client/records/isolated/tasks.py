"""Tasks of a reader process: everything that opens a file of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from eigenveil.study.study import Study
from eigenveil_client.records import genotype_files
from eigenveil_client.records.column_quality import Bounds, PlausibleRanges
from eigenveil_client.records.discovery.look import look_at
from eigenveil_client.records.discovery.profiles import profile
from eigenveil_client.records.discovery.tables import possible_tables
from eigenveil_client.records.isolated.checked import MOST_NAMES
from eigenveil_client.records.isolated.frames import Item
from eigenveil_client.records.recoding.offered import OfferedColumns
from eigenveil_client.records.recoding.rule import Rules
from eigenveil_client.records.records import line_counts, open_reading, stream
from eigenveil_client.records.scratch_files import Scratch
from eigenveil_client.records.sources.columnar import ParquetTable
from eigenveil_client.records.sources.delimited import CsvTable
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.summary import RowSink
from eigenveil_client.records.tables.cells import ignore
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig

AT_ONCE = 64  # names in one frame


def read_records(
    config: RecordsConfig,
    item: Item,
    sink: RowSink,
    *,
    study: Study,
    rules: Rules,
    plausible: PlausibleRanges,
    tolerant: bool,
    scratch: Scratch,
    offered: OfferedColumns,
) -> dict[str, Any]:
    """Read the records of a study with `records.stream`. Items are the names of columns with unreadable
    cells, and None if lines are lost; these are errors unless `tolerant`."""
    bad = set[str | None]()
    found = stream(
        config, study, sink, rules=rules, plausible=plausible,
        unreadable=bad.add if tolerant else None, scratch=scratch, offered=offered,
    )  # fmt: skip
    for column in bad:
        item(column)
    for good in found.quality:
        item(list(good.counts.values()))
    counts = {"persons": found.persons, "lines": found.lines, "lost": found.lost}
    return counts | {"file": found.file.hex(), "version": found.version.hex()}


def count_lines(
    config: RecordsConfig,
    item: Item,
    sink: RowSink,
    *,
    rules: Rules,
    offered: OfferedColumns,
    person: str | None,
) -> dict[str, Any]:
    """Count the lines of the source. Items are the lost lines of each reason, then each column's cells."""
    found = line_counts(config, rules, offered, person)
    for one in found.lost:
        item([one.reason.value, one.lines, list(one.first)])
    for column in found.cells:
        item(asdict(column))
    _send_names(found.not_numbers, config, item)
    totals = {"lines": found.lines, "used": found.used, "skipped": found.skipped, "repeated": found.repeated}
    return totals | {"version": found.version.hex()}


def check_source(config: RecordsConfig, item: Item, sink: RowSink) -> None:
    """Check that the source can be opened, whatever its number of columns."""
    open_source(config).schema()


def list_columns(config: RecordsConfig, item: Item, sink: RowSink) -> int | None:
    """List the names of the columns. The final value is the number of Parquet files; None for other kinds."""
    source = open_source(config)
    if isinstance(source, CsvTable):
        source.check_separator()
    _send_names(source.schema().names, config, item)
    if not isinstance(source, ParquetTable):
        return None
    for path in source.paths:
        item(str(path))
    return len(source.paths)


def digest_source(config: RecordsConfig, item: Item, sink: RowSink) -> str:
    """Return the digest of the whole source."""
    return open_source(config).digest().hex()


def profile_columns(
    config: RecordsConfig,
    item: Item,
    sink: RowSink,
    *,
    rules: Rules,
    columns: Mapping[str, Bounds | None],
    person: str | None,
) -> None:
    """Profile each column."""
    reading = open_reading(config, ignore)
    for one in profile(reading, rules, columns, person):
        item(asdict(one))


def list_tables(config: RecordsConfig, item: Item, sink: RowSink) -> None:
    """List the tables of a source that has several."""
    for one in possible_tables(config):
        item(asdict(one))


def see_table(config: RecordsConfig, item: Item, sink: RowSink) -> dict[str, Any]:
    """Send the content of each column of a table whose settings are not known; return these and the rest."""
    found = look_at(config)
    for column in found.columns:
        item(asdict(column))
    return {
        "dialect": asdict(found.config.dialect),
        "header_line": found.config.header_line,
        "units_below_header": found.config.units_below_header,
        "evidence": list(found.evidence),
        "lost": found.lost,
    }


def list_variants(config: RecordsConfig, item: Item, sink: RowSink) -> int:
    """List the columns of a file of genotypes that a study can use; return the number left out."""
    assert config.source is not None
    found = genotype_files.list_variants(config.source)
    _send_names(found.columns, config, item)
    return found.left_out


def _send_names(names: Sequence[str], config: RecordsConfig, item: Item) -> None:
    if len(names) > MOST_NAMES:
        many = f"{config} has {len(names)} columns, over {MOST_NAMES}, too many to list"
        raise BadRecords(f"{many}. List those of a part of it")
    for start in range(0, len(names), AT_ONCE):
        item(names[start : start + AT_ONCE])

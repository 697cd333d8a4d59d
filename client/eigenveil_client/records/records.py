"""A site's records, from a file or a view onto a study's grid, read in this process.

Daemons and commands use `isolated.reader` instead, as opening a damaged file can crash a process.

With a person column, the rows of one person are one record, by the site's rule for each column. Without a
rule, the first row in the file is the person's, also when it has a missing value and the study drops it. A
record depends on that person's rows alone, so a person more or less changes one record [P30].

Persons and the quality of columns are counted before a study's rules drop any person. Of an analyst's choices
only the bounds of a column affect its counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

import pyarrow as pa

from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import NO_RANGES, PlausibleRanges
from eigenveil_client.records.grid_encoding import grid_encoder
from eigenveil_client.records.line_counting import count_lines, count_other_rows
from eigenveil_client.records.line_counts import LineCounts
from eigenveil_client.records.recoding.offered import EVERY_COLUMN, OfferedColumns
from eigenveil_client.records.recoding.parsing import column_parser, number_headers
from eigenveil_client.records.recoding.rule import Rules, digest
from eigenveil_client.records.scratch_files import SYSTEM, Scratch
from eigenveil_client.records.sources.delimited import CsvTable
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.summary import RecordsSummary, RowSink, check_study, records_digest
from eigenveil_client.records.tables.cells import OnUnreadable, Reading, ignore
from eigenveil_client.records.tables.source import RecordsConfig


def stream(
    config: RecordsConfig,
    study: Study,
    sink: RowSink,
    *,
    rules: Rules = (),
    plausible: PlausibleRanges = NO_RANGES,
    unreadable: OnUnreadable | None = None,
    scratch: Scratch = SYSTEM,
    offered: OfferedColumns = EVERY_COLUMN,
) -> RecordsSummary:
    """Pass the records of a site to `sink`, block by block, and return their summary.

    The `rules` of the site define what cells mean, and values are counted against the `plausible` ranges.
    Blocks are usable records, as stored integers of the study's grid. Memory holds one block, whatever the
    number of records; gathered rows of persons that do not fit into memory are written to `scratch`.

    A cell that is empty, NA, N/A, NaN or null (in any case) is missing. A cell that is not a finite number or
    not UTF-8 is an error, and so is a line with too many or too few cells. If `unreadable` is given, it is
    called instead: such cells are missing, and such a line is left out, like a row without a person. Either
    way the outcome for a record depends on that record alone.

    Raises:
        RequestError: code `site-policy`, a column has another unit than the site's, or its name bypasses its
        rule.
        BadRecords: naming the column and the line, or the file."""
    check_study(study, rules, plausible, config.person)
    reading = open_reading(config, unreadable)
    source = reading.table.digest()
    headers = reading.headers
    parsers = [column_parser(headers, rules, one.name, one.unit, config.missing) for one in study.columns]
    if isinstance(reading.table, CsvTable):
        numbers = number_headers(parsers, reading.table.dialect, reading.person_header(study.person_column))
        reading = replace(reading, table=replace(reading.table, numbers=numbers))
    placed = grid_encoder(reading, parsers, study, plausible, scratch)
    persons = 0
    for block in placed.blocks():
        sink(block.rows)
        persons += block.persons
    lost = reading.tally.lost + count_other_rows(reading, rules, offered, study.person_column)
    pa.default_memory_pool().release_unused()  # hundreds of MiB, of wide tables
    return RecordsSummary(
        persons=persons,
        file=records_digest(config, source, rules),
        quality=placed.quality,
        lines=reading.tally.lines,
        lost=lost,
        version=lines_version(config, source, rules, offered, study.person_column),
    )


def open_reading(config: RecordsConfig, unreadable: OnUnreadable | None) -> Reading:
    """Open the records of a site, for reading by its settings."""
    table = open_source(config)
    return Reading(table=table, unreadable=unreadable, missing=config.missing, person=config.person)


def line_counts(
    config: RecordsConfig, rules: Rules, offered: OfferedColumns, person: str | None
) -> LineCounts:
    """Return the counts of the lines of a site's records. Raises as `stream`."""
    reading = open_reading(config, ignore)
    version = lines_version(config, reading.table.digest(), rules, offered, person)
    return count_lines(reading, rules, offered, person, version, config.header_line - 1)


def lines_version(
    config: RecordsConfig, source: bytes, rules: Rules, offered: OfferedColumns, person: str | None
) -> bytes:
    """Return the digest of all on which the counts of lines depend: the `source`, by its digest, and the
    settings by which it is read."""
    settings = {
        "dialect": asdict(config.dialect),
        "sheet": config.sheet,
        "person": person,
        "columns": sorted(offered.allowed),
    }
    more = [source, digest(rules), config.reading_digest, json.dumps(settings, sort_keys=True).encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in more)).digest()

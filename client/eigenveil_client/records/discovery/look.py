"""Look at a source: its dialect and header, then the content of its columns. Runs where files are opened, in
a reader process; the result is confidential."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from eigenveil_client.records.discovery.columns import SeenColumn, seen_column, usual_marks, words_of
from eigenveil_client.records.discovery.encodings import UTF8, find_encoding
from eigenveil_client.records.discovery.layout import (
    LOOKED_AT,
    FoundHeader,
    cells,
    find_header,
    find_layout,
    repeated_name,
)
from eigenveil_client.records.discovery.words import CellKind, Marks, cell_kind
from eigenveil_client.records.sources.excel import head_rows
from eigenveil_client.records.sources.text_bytes import CHUNK, opened
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.errors import UNREADABLE
from eigenveil_client.records.tables.source import (
    DELIMITED,
    MOST_SKIPPED,
    WORKBOOKS,
    BadRecords,
    Dialect,
    RecordsConfig,
    kind_of,
    unreadable,
)
from eigenveil_client.records.tables.units import cell_unit

MOST_ROWS, MOST_CELLS = 100_000, 2**23  # of a source that are looked at
MOST_COLUMNS = 5000
NO_HEADER = "no row names the columns. Write their names into the first row"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTable:
    """Content of a table: the settings that read it, sentences of evidence for them, its columns, and the
    number of `lost` lines, if all were looked at."""

    config: RecordsConfig
    evidence: tuple[str, ...]
    columns: tuple[SeenColumn, ...]
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """Settings found in the first rows, and the cells above and below the names, by column."""

    config: RecordsConfig
    evidence: tuple[str, ...] = ()
    labels: Sequence[str] = ()
    units: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Words of each column with a unique name, among all `headers`; and as `SeenTable`."""

    headers: tuple[str, ...]
    words: Mapping[str, Counter[str]]
    lost: int


def look_at(config: RecordsConfig) -> SeenTable:
    """Return the content of one table. Stated settings of a dialect are replaced by those that were found.
    Raises BadRecords: it cannot be read, or names no columns."""
    head = _head(config)
    found, evidence, counts = head.config, head.evidence, _count(head)
    usual, dialect = _marks(found, counts.words.values()), found.dialect
    if config.source is not None and (usual.decimal, usual.thousands) != (dialect.decimal, dialect.thousands):
        dialect = replace(dialect, decimal=usual.decimal, thousands=usual.thousands)
        found, evidence = replace(found, dialect=dialect), (*evidence, _marks_evidence(usual))
        if not _is_text(config):  # numbers are written with these marks now
            counts = _count(replace(head, config=found))
    above, below = (dict(zip(counts.headers, row, strict=False)) for row in (head.labels, head.units))
    columns = tuple(
        seen_column(header, words, usual, label=above.get(header, ""), unit=cell_unit(below.get(header, "")))
        for header, words in counts.words.items()
    )
    return SeenTable(config=found, evidence=evidence, columns=columns, lost=counts.lost)


def _is_text(config: RecordsConfig) -> bool:
    return config.source is not None and kind_of(config.source) in DELIMITED and not config.source.is_dir()


def _head(config: RecordsConfig) -> _Head:
    if config.source is None or config.is_sqlite or config.source.is_dir():
        return _Head(config=config)
    if _is_text(config):
        return _head_of_text(config)
    return _head_of_sheet(config) if kind_of(config.source) in WORKBOOKS else _Head(config=config)


def _head_of_text(config: RecordsConfig) -> _Head:
    assert config.source is not None
    try:
        with opened(config.source, UTF8) as file:
            encoding = find_encoding(iter(partial(file.read, CHUNK), b""))
        lines = list(islice(_lines(config, encoding.name), LOOKED_AT + MOST_SKIPPED))
    except UNREADABLE:
        raise unreadable(config.source) from None
    filled = [(number, line) for number, line in enumerate(lines, 1) if line][
        :LOOKED_AT
    ]  # as the reader has it
    if not filled:
        raise BadRecords(f"{config.source} is empty. Its first line must name the columns")
    layout = find_layout([line for _, line in filled])
    rows = cells([line for _, line in filled], layout.separator)
    if layout.header is None:
        raise _no_header(str(config.source), "line", rows, filled)
    dialect = Dialect(separator=layout.separator, encoding=encoding.name)
    place = filled[layout.header.row][0]
    settings = replace(
        config, dialect=dialect, header_line=_first(layout.header, filled),
        units_below_header=layout.header.units is not None,
    )  # fmt: skip
    evidence = (
        layout.evidence,
        f"encoding {encoding.name}: {encoding.evidence}",
        _header_evidence("line", place, layout.header),
    )
    return _Head(config=settings, evidence=evidence, **_beside(layout.header, rows))


def _lines(config: RecordsConfig, encoding: str) -> Iterator[str]:
    assert config.source is not None
    file = opened(config.source, encoding)
    with io.TextIOWrapper(file, "utf-8-sig", errors="replace") as text:
        for line in text:
            yield line.rstrip("\n")


def _first(header: FoundHeader, filled: Sequence[tuple[int, object]]) -> int:
    """Return the setting `header_line`: 1 if nothing but blank lines is before the header."""
    return 1 if header.row == 0 else filled[header.row][0]


def _head_of_sheet(config: RecordsConfig) -> _Head:
    assert config.source is not None
    numbered = head_rows(config.source, config.sheet, LOOKED_AT)
    rows = [[cell.strip() for cell in row] for _, row in numbered]
    header = find_header(rows)
    if header is None:
        raise _no_header(f"{config.source}, sheet {config.sheet!r}", "row", rows, numbered)
    settings = replace(
        config, header_line=_first(header, numbered), units_below_header=header.units is not None
    )
    evidence = (_header_evidence("row", numbered[header.row][0], header),)
    return _Head(config=settings, evidence=evidence, **_beside(header, rows))


def _no_header(
    table: str, what: str, rows: Sequence[Sequence[str]], numbered: Sequence[tuple[int, object]]
) -> BadRecords:
    found = repeated_name(rows)
    if found is None:
        return BadRecords(f"{table}: {NO_HEADER}")
    row, name = found
    return BadRecords(f"{table}: {what} {numbered[row][0]} names two columns {name!r}. Rename one of them")


def _header_evidence(what: str, number: int, header: FoundHeader) -> str:
    below = "" if header.units is None else f"; the {what} below it has units, and is skipped"
    return f"{what} {number} is the last of distinct words before the first {what} with values{below}"


def _beside(header: FoundHeader, rows: Sequence[Sequence[str]]) -> dict[str, Sequence[str]]:
    labels = () if header.labels is None else rows[header.labels]
    return {"labels": labels, "units": () if header.units is None else rows[header.units]}


def _count(head: _Head) -> _Counts:
    """Count the words of each named column, over the first rows."""
    source, lost, rows = open_source(head.config), list[int](), 0
    headers = source.headers
    named = Counter(headers)
    names = [name for name in headers if name.strip() and named[name] == 1][:MOST_COLUMNS]
    if not names:
        raise BadRecords(f"{head.config} has no named columns: {NO_HEADER}")
    most = min(MOST_ROWS, max(1000, MOST_CELLS // len(names)))
    words = {name: Counter[str]() for name in names}
    for batch in source.batches(names, lost.append):
        part = batch.slice(0, most - rows)
        for name, column in zip(names, part.columns, strict=True):
            words[name] += words_of(column)
        rows += part.num_rows
        if rows >= most:
            break
    return _Counts(headers=headers, words=words, lost=sum(lost))


def _marks(config: RecordsConfig, columns: Iterable[Counter[str]]) -> Marks:
    """Return the marks of the table's numbers. In workbooks and SQLite numbers come with a point, so a text
    with a decimal comma decides."""
    counted = list(columns)
    if _is_text(config) or config.source is None:
        return usual_marks(counted)
    texts = [
        {word: times for word, times in words.items() if "," in word and cell_kind(word) is CellKind.NUMBER}
        for words in counted
    ]
    return usual_marks(texts if any(texts) else counted)


def _marks_evidence(marks: Marks) -> str:
    grouped = f", and {marks.thousands!r} between thousands" if marks.thousands else ""
    return f"most numbers have {marks.decimal!r} before decimals{grouped}"

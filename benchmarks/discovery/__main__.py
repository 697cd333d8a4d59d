"""Share of dialects and of columns that discovery finds in seeded messy files, beside DuckDB and csv.Sniffer.

    python -m benchmarks.discovery
    python -m benchmarks.discovery --files 60

A dialect is right if all of these are: the separator, the line of names, the encoding, and the marks of
numbers where a number has them. DuckDB and csv.Sniffer get text in UTF-8. They find no encoding and no marks,
so they are asked for the separator, and DuckDB for the line of names. `on DuckDB` is DuckDB's separator, and
all else our own."""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from eigenveil_client.records.discovery.layout import LOOKED_AT, SEPARATORS, cells, find_header
from eigenveil_client.records.discovery.look import look_at
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from tests.client.records.discovery.messy import MessyFile, messy_file, right_dialect
from tests.client.site.mapping.scores import columns

SNIFF = "SELECT Delimiter, SkipRows, HasHeader FROM sniff_csv(?)"


@dataclass(frozen=True, slots=True)
class Sniffed:
    """Separator and line of names (from 1, of all lines) that a program finds; None if it finds none."""

    separator: str | None
    header_line: int | None


def first_filled(text: str) -> list[tuple[int, str]]:
    """The first filled lines, with their numbers."""
    lines = text.removeprefix("\ufeff").splitlines()
    return [(number, line) for number, line in enumerate(lines, 1) if line][:LOOKED_AT]


def by_duckdb(text: str, folder: Path) -> Sniffed:
    """The findings of DuckDB's sniffer."""
    path = folder / "sniffed.csv"
    path.write_text(text.removeprefix("\ufeff"), encoding="utf-8", newline="")
    with suppress(duckdb.Error):
        separator, skipped, named = duckdb.execute(SNIFF, [str(path)]).fetchall()[0]
        return Sniffed(separator, int(skipped) + 1 if named else None)
    return Sniffed(None, None)


def by_sniffer(text: str) -> str | None:
    """The separator that Python's sniffer finds."""
    with suppress(csv.Error):
        head = "\n".join(line for _, line in first_filled(text))
        return csv.Sniffer().sniff(head, delimiters="".join(SEPARATORS)).delimiter
    return None


def on_duckdb(text: str, found: Sniffed) -> Sniffed:
    """DuckDB's separator with our own line of names."""
    if found.separator not in SEPARATORS:
        return Sniffed(None, None)
    lines = first_filled(text)
    header = find_header(cells([line for _, line in lines], str(found.separator)))
    return Sniffed(found.separator, None if header is None else lines[header.row][0])


def right_layout(file: MessyFile, text: str, found: Sniffed) -> bool:
    """True if separator and line of names are the true ones; blank lines before it do not count."""
    first = first_filled(text)[0][0]
    lines = {file.header_line} if file.header_line > 1 else {1, first}
    return found.separator == file.separator and found.header_line in lines


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200, help="how many files [200]")
    parser.add_argument("--first", type=int, default=0, help="the first seed [0]")
    options = parser.parse_args()
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        for seed in range(options.first, options.first + options.files):
            file, path = messy_file(seed), Path(name) / "records.csv"
            path.write_bytes(file.data)
            text = file.data.decode(file.encoding)
            duck = by_duckdb(text, Path(name))
            counts["DuckDB: separator and names"] += right_layout(file, text, duck)
            counts["on DuckDB: separator and names"] += right_layout(file, text, on_duckdb(text, duck))
            counts["csv.Sniffer: separator"] += by_sniffer(text) == file.separator
            try:
                table = look_at(RecordsConfig(source=path))
            except BadRecords as problem:
                print(f"file {seed} ({file.style}): {problem}")
                counts["missed"] += sum(one.column is not None for one in file.columns)
                continue
            found = table.config
            own = Sniffed(found.dialect.separator, found.header_line)
            counts["own: separator and names"] += right_layout(file, text, own)
            counts["own: whole dialect"] += right_dialect(file, table)
            counts.update(columns(file, table))
    true = counts["proposed"] + counts["missed"]
    print(f"{options.files} files, of which right:")
    for name in ("own: separator and names", "own: whole dialect", "on DuckDB: separator and names",
                 "DuckDB: separator and names", "csv.Sniffer: separator", "person right"):  # fmt: skip
        print(f"  {name:32} {100 * counts[name] / options.files:6.1f} %")
    proposed, certain = (100 * counts[name] / true for name in ("proposed", "certain"))
    print(f"{true} true columns: proposed {proposed:.1f} %, without a question {certain:.1f} %")
    print(f"wrong without a question: {counts['wrong without a question']}")


if __name__ == "__main__":
    main()

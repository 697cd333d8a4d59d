"""Files of records that are made to bite, small ones; and what ends a reader before it has read any."""

from __future__ import annotations

import ctypes
import gzip
import json
import re
import sqlite3
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import xlsxwriter

from eigenveil.errors import Code
from eigenveil.study.study import Column, Federation, Study
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from tests.client.records.genotypes.support import genotypes, plink, vcf_zarr
from tests.client.records.isolated import workbooks

MEMBER = 2**24  # bytes that are packed at a time
STUDY = Study(
    name="bites", columns=tuple(Column(name=name, unit="", lower=0, upper=300) for name in ("a", "b", "c")),
    epsilon=1.0, delta=1e-6, components=1, federation=Federation(sites=("north",)),
)  # fmt: skip
ABSENT = RecordsConfig(source=Path("nowhere.csv"))


def refusal(call: Callable[[], Any]) -> BadRecords:
    """The error of a call: of the records, and in one line that begins like every other."""
    with pytest.raises(BadRecords) as found:
        call()
    assert found.value.code is Code.BAD_DATA
    assert len(str(found.value).splitlines()) == 1
    return found.value


class Ends:
    """A request that ends the process which reads it: whatever a defect of a parser may do."""

    def __init__(self, call: Callable[..., Any], *given: Any) -> None:
        self._call, self._given = call, given

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call, self._given


SEGFAULT = Ends(ctypes.string_at, 0)
HANGS = Ends(time.sleep, 600)


def a_table(rows: int = 300) -> pa.Table:
    return pa.table({
        "a": np.arange(rows) % 7.0,
        "b": [f"{number % 5}" for number in range(rows)],
        "c": pa.array(range(rows), pa.int16()),
    })  # fmt: skip


def arrow(path: Path) -> RecordsConfig:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, a_table().schema) as out:
        out.write_table(a_table(), max_chunksize=100)
    return RecordsConfig(source=path)


def parquet_file(path: Path) -> RecordsConfig:
    parquet.write_table(a_table(), path, row_group_size=100)
    return RecordsConfig(source=path)


def csv(path: Path) -> RecordsConfig:
    path.write_bytes(b"a,b,c\n" + b"".join(b"%d,%d,%d\n" % (row % 7, row % 5, row) for row in range(300)))
    return RecordsConfig(source=path)


def tsv(path: Path) -> RecordsConfig:
    csv(path)
    path.write_bytes(path.read_bytes().replace(b",", b"\t"))
    return RecordsConfig(source=path)


def csv_gz(path: Path) -> RecordsConfig:
    plain = path.with_suffix(".plain")
    csv(plain)
    path.write_bytes(gzip.compress(plain.read_bytes()))
    return RecordsConfig(source=path)


def sqlite(path: Path) -> RecordsConfig:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE records (a REAL, b TEXT, c INTEGER)")
        database.executemany("INSERT INTO records VALUES (?, ?, ?)", [(n % 7, n % 5, n) for n in range(300)])
    return RecordsConfig(source=path, table="records")


def xlsx(path: Path) -> RecordsConfig:
    with xlsxwriter.Workbook(str(path)) as book:
        sheet = book.add_worksheet("s")
        sheet.write_row(0, 0, ["a", "b", "c"])
        for n in range(60):
            sheet.write_row(n + 1, 0, [n % 7, n % 5, n])
    return RecordsConfig(source=path)


def far_cell(path: Path, *, dimension: bool) -> RecordsConfig:
    """Two cells: the first, and the last that a sheet has room for; whether it states its dimensions."""
    with xlsxwriter.Workbook(str(path)) as book:
        sheet = book.add_worksheet("s")
        sheet.write(0, 0, 1)
        sheet.write(2**20 - 1, 2**14 - 1, 1)
    if not dimension:
        with zipfile.ZipFile(path) as packed:
            parts = {name: packed.read(name) for name in packed.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            for name, data in parts.items():
                out.writestr(name, re.sub(rb"<dimension [^>]*>", b"", data))
    return RecordsConfig(source=path)


def bed(path: Path) -> RecordsConfig:
    plink(path, genotypes(30, 4))
    return RecordsConfig(source=path)


def zarr(path: Path) -> RecordsConfig:
    vcf_zarr(path, genotypes(30, 4))
    return RecordsConfig(source=path)


def packed(path: Path, piece: bytes, times: int) -> RecordsConfig:
    """A .csv.gz of a header and a piece of text that is there so many times."""
    one = gzip.compress(piece * (MEMBER // len(piece)), 6)
    path.write_bytes(gzip.compress(b"a,b,c\n") + one * times)
    return RecordsConfig(source=path)


def wide_zarr(path: Path) -> RecordsConfig:
    """A group of a few hundred bytes whose list of persons is said to be two thousand million long."""
    zarr(path)
    about = path / "sample_id" / ".zarray"
    stated = json.loads(about.read_text())
    stated["shape"] = [2**31]
    about.write_text(json.dumps(stated))
    return RecordsConfig(source=path)


def endless_view(path: Path) -> RecordsConfig:
    """A SQLite file whose table is a view without an end, of cells of 200 MB."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE beneath (a)")
        database.execute(
            "CREATE VIEW records AS WITH RECURSIVE r(a) AS (SELECT zeroblob(200000000) UNION ALL "
            "SELECT a FROM r) SELECT a, a AS b, a AS c FROM r"
        )
    return RecordsConfig(source=path, table="records")


def bombed_workbook(path: Path) -> RecordsConfig:
    """A workbook whose sheet is three thousand million spaces, as its directory says."""
    xlsx(path)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")  # the directory's entry of the sheet
    data[at + 24 : at + 28] = (3 * 10**9).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    return RecordsConfig(source=path)


def folder(path: Path) -> RecordsConfig:
    path.mkdir()
    for name in ("first.parquet", "second.parquet"):
        parquet_file(path / name)
    return RecordsConfig(source=path)


def selected(make: Callable[[Path], RecordsConfig]) -> Callable[[Path], RecordsConfig]:

    def maker(path: Path) -> RecordsConfig:
        return replace(make(path), table="", sql="SELECT a, b, c FROM records")

    return maker


# Of each ending that a reader knows; without one a folder, and what a SELECT is over.
GOOD: dict[str, Callable[[Path], RecordsConfig]] = {
    **dict.fromkeys(("records.arrow", "records.feather"), arrow),
    **dict.fromkeys(("records.parquet", "records.pq"), parquet_file),
    **dict.fromkeys(("records.csv", "records.txt"), csv), "records.tsv": tsv, "records.csv.gz": csv_gz,
    **dict.fromkeys(("records.db", "records.sqlite", "records.sqlite3"), sqlite),
    **dict.fromkeys(("records.xlsx", "records.xlsm"), xlsx), "records.xlsb": workbooks.sample,
    "records.xls": workbooks.sample, "records.ods": workbooks.ods, "records.bed": bed,
    **dict.fromkeys(("records.zarr", "records.vcz"), zarr), "records": folder, "selected.csv": selected(csv),
    "selected.parquet": selected(parquet_file), "selected.db": selected(sqlite),
}  # fmt: skip
# Of these, what opens the file; an error of it passes through our code.
OPENED_BY_ARROW = {
    "records.csv": "delimited_chunks.arrow_csv.read_csv",
    "records.parquet": "columnar.parquet.ParquetFile",
    "records.arrow": "columnar.pa.ipc.open_file",
}

"""Lines of damaged tables: each is used or lost, for one reason, as the generator of the table knows and as a
specification of lines and cells says that shares no code with the product."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import xlsxwriter

from eigenveil_client.records.line_counts import LineCounts
from eigenveil_client.records.recoding.offered import OfferedColumns
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.records import line_counts
from eigenveil_client.records.tables.cells import ignore
from eigenveil_client.records.tables.lost import LostReason
from eigenveil_client.records.tables.source import BadRecords, Dialect, RecordsConfig
from tests.client.records import support as records
from tests.client.site.support import a_study

FEW, MANY, BYTES, PERSON, OTHER = LostReason
NUMBERS = ("1", "2.5", " 3 ", "-4", "5e0", "NA", "", "n/a", "nan", '"6"', '"7"')
WORDS = ("x", "1;", ">5", "inf", "2024-03-01", "1_0", '"a ""b"""', "½", "x" * 60)
NOBODY = ("", " ", "NA", "null", "gone", " GONE", '""')
# bytes that are invalid in an encoding; of UTF-16 a surrogate without its pair
INVALID = {"utf-8": b"\xff", "utf-8-sig": b"\xc3", "ascii": b"\xe9", "cp1252": b"\x81", "shift_jis": b"\xfd",
           "utf-16-le": b"\x00\xd8"}  # fmt: skip
ENCODINGS = (*INVALID, "latin-1")
STUDY = a_study(person_column="person")
OFFERED = OfferedColumns(persons=("person",), named=frozenset("abc"))


@dataclass
class Truth:
    """Content of a table: lines by their number, why they are lost, and the unreadable cells of used ones."""

    lines: int = 0
    texts: list[str] = field(default_factory=list)
    lost: dict[LostReason, list[int]] = field(default_factory=lambda: {reason: [] for reason in LostReason})
    cells: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: {name: [] for name in "abc"})

    @property
    def used(self) -> int:
        return self.lines - sum(map(len, self.lost.values()))


def check(found: LineCounts, truth: Truth, where: object) -> None:
    lost = {one.reason: (one.lines, one.first) for one in found.lost}
    expected = {
        reason: (len(numbers), tuple(f"line {number}" for number in numbers[:3]))
        for reason, numbers in truth.lost.items()
        if numbers
    }
    assert found.lines == found.used + sum(lines for lines, _ in lost.values()), where
    assert (found.lines, found.used, lost) == (truth.lines, truth.used, expected), where
    assert found.repeated == len(truth.texts) - len(set(truth.texts)), where
    shown = {one.column: (one.cells, [(e.place, e.text) for e in one.examples]) for one in found.cells}
    assert shown == {
        name: (len(cells), [(f"line {number}", cut(text)) for number, text in cells[:3]])
        for name, cells in truth.cells.items()
        if cells
    }, where


def cut(text: str) -> str:
    """Specification: an example as it is shown."""
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= 40 else f"{text[:39]}…"


def cells_of(text: str, mark: str) -> list[str] | None:
    """Specification: the cells of a line, character by character; None if a quote stays open."""
    found, cell, start, at = [], "", True, 0
    while at < len(text):
        one = text[at]
        if start and one == '"':
            at += 1
            while True:
                if at >= len(text):
                    return None
                if text[at] != '"':
                    cell, at = cell + text[at], at + 1
                elif text[at + 1 : at + 2] == '"':
                    cell, at = cell + '"', at + 2
                else:
                    at += 1
                    break
            start = False
            continue
        at, start = at + 1, one == mark
        cell = cell + one if one != mark else cell
        if one == mark:
            found.append(cell)
            cell = ""
    return [*found, cell]


def is_number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", cell) is not None


def is_missing(cell: str) -> bool:
    return cell.strip().lower() in ("", "na", "n/a", "nan", "-nan", "null", "gone")


def specified(data: bytes, dialect: Dialect, header_line: int) -> Truth | None:
    """Specification: what a text holds whose header is person, a, b, c; None if it is refused."""
    # a replaced character stands for invalid bytes: none is written on purpose
    text = data.decode(dialect.encoding, "replace").removeprefix("\ufeff")
    truth, header = Truth(), False
    for number, line in enumerate(re.split("\r\n|\r|\n", text), 1):
        if number < header_line or not line:
            continue
        if not header:
            header = True
            continue
        truth.lines += 1
        truth.texts.append(line)
        cells = cells_of(line, dialect.separator)
        if cells is None:
            return None
        if len(cells) != 4:
            truth.lost[FEW if len(cells) < 4 else MANY].append(number)
        elif "\ufffd" in line:
            truth.lost[BYTES].append(number)
        elif is_missing(cells[0]):
            truth.lost[PERSON].append(number)
        else:
            for name, cell in zip("abc", cells[1:], strict=True):
                if not is_missing(cell) and not is_number(cell.strip()):
                    truth.cells[name].append((number, cell.strip()))
    return truth


@dataclass
class Writer:
    """A table that is written line by line, with damage at some of them, and its truth."""

    rng: Random
    dialect: Dialect
    header_line: int
    data: bytes = b""
    number: int = 0
    truth: Truth = field(default_factory=Truth)

    def line(self, text: str, invalid: bytes = b"") -> None:
        self.number += 1
        end = self.rng.choice(("\n", "\r\n"))
        encoding = self.dialect.encoding.replace("utf-8-sig", "utf-8")
        self.data += text.encode(encoding) + invalid + end.encode(encoding)

    def head(self) -> None:
        for number in range(1, self.header_line):
            self.line(self.rng.choice(("Export of today", "", "a,b;c", '"open')) if number else "")
        self.line(self.dialect.separator.join(["person", "a", "b", "c"]))

    def cell(self, cells: tuple[str, ...]) -> str:
        """A cell that the encoding has, and that holds no mark between cells outside of quotes."""
        while True:
            cell = self.rng.choice(cells)
            if self.dialect.separator in cell and not cell.startswith('"'):
                continue
            if cell.encode(self.dialect.encoding, "ignore").decode(self.dialect.encoding, "ignore") == cell:
                return cell

    def record(self) -> None:
        kinds, weights = zip(*DAMAGE.items(), strict=True)
        (kind,) = self.rng.choices(kinds, weights)
        if kind == "empty":
            self.line("")
            return
        cells = [f"p{self.rng.randrange(9)}", *(self.cell(NUMBERS) for _ in range(3))]
        if kind == "word":
            cells[self.rng.randrange(1, 4)] = self.cell(WORDS)
        invalid = b""
        if kind is BYTES:
            invalid = INVALID.get(self.dialect.encoding, b"")
        elif kind is PERSON:
            cells[0] = self.cell(NOBODY)
        elif kind is FEW:
            cells = cells[: self.rng.randrange(1, 4)]
            kind = kind if "".join(cells) else "empty"  # a line without a character is none
        elif kind is MANY:
            cells += [self.cell(NUMBERS)] * self.rng.randrange(1, 4)
        self._note(kind, cells, invalid)

    def _note(self, kind: object, cells: list[str], invalid: bytes) -> None:
        text = self.dialect.separator.join(cells)
        self.line(text, invalid)
        if kind == "empty":
            return
        self.truth.lines += 1
        self.truth.texts.append(text + ("\ufffd" if invalid else ""))
        if isinstance(kind, LostReason) and (kind is not BYTES or invalid):
            self.truth.lost[kind].append(self.number)
            return
        for name, cell in zip("abc", cells[1:], strict=True):
            shown = cell.strip().removeprefix('"').removesuffix('"').replace('""', '"')
            if cell in WORDS:
                self.truth.cells[name].append((self.number, shown))


DAMAGE: dict[Any, int] = {"whole": 60, "word": 12, "empty": 4, FEW: 6, MANY: 6, BYTES: 6, PERSON: 6}


def written(rng: Random) -> Writer:
    dialect = Dialect(separator=rng.choice(",;\t|"), encoding=rng.choice(ENCODINGS))
    writer = Writer(rng, dialect, header_line=rng.choice((1, 1, 3)))
    writer.head()
    for _ in range(rng.choice((0, 1, 5, 40, 40))):
        writer.record()
    return writer


def counted(path: Path, writer: Writer, **keys: Any) -> LineCounts:
    path.write_bytes(writer.data)
    config = RecordsConfig(
        source=path, dialect=writer.dialect, header_line=writer.header_line, missing=("gone",), **keys
    )
    found = agreed_counts(config)
    assert found.skipped == writer.header_line - 1
    return found


def agreed_counts(config: RecordsConfig) -> LineCounts:
    """The counts of a table, which reading for a study agrees with."""
    found = line_counts(config, (), OFFERED, "person")
    read = records.read(config, STUDY, unreadable=ignore, offered=OFFERED)
    assert (read.lines, read.lost, read.version) == (found.lines, found.all_lost, found.version)
    return found


def check_written(folder: Path, seed: int) -> Counter[LostReason]:
    """Check one table that the generator damaged line by line; return its lost lines."""
    writer = written(Random(seed))
    where = (seed, writer.dialect, writer.header_line)
    assert specified(writer.data, writer.dialect, writer.header_line) == writer.truth, where
    check(counted(folder / "records.csv", writer), writer.truth, where)
    return Counter({reason: len(numbers) for reason, numbers in writer.truth.lost.items()})


PIECES = (b",", b",", b"\n", b"\r", b'"', b'""', b"\xff", b"\xc3", b"x", b" ", b",,", b"NA", b"\r\n", b"\0")


def check_bytes(folder: Path, seed: int) -> bool:
    """Check one table of which pieces were replaced anywhere; return True if it is refused as a whole."""
    rng = Random(seed)
    writer = Writer(rng, Dialect(), header_line=1)
    writer.head()
    head = len(writer.data)
    for _ in range(rng.randrange(1, 12)):
        writer.record()
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(head, len(writer.data) + 1)
        writer.data = writer.data[:at] + rng.choice(PIECES) + writer.data[at + rng.randrange(3) :]
    truth = specified(writer.data, writer.dialect, 1)
    if truth is None:
        with pytest.raises(BadRecords, match="spans lines"):
            counted(folder / "records.csv", writer)
        return True
    check(counted(folder / "records.csv", writer), truth, (seed, writer.data))
    return False


def test_lines_of_damaged_tables_are_used_or_lost_as_the_generator_knows(tmp_path: Path) -> None:
    found = sum((check_written(tmp_path, seed) for seed in range(150)), Counter[LostReason]())
    assert min(found[reason] for reason in (FEW, MANY, BYTES, PERSON)) > 0
    assert {check_bytes(tmp_path, seed) for seed in range(150)} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_lines_of_ten_thousand_damaged_tables(tmp_path: Path, part: int) -> None:
    for seed in range(500):
        check_written(tmp_path, 10_000 + 500 * part + seed)
        check_bytes(tmp_path, 10_000 + 500 * part + seed)


@pytest.mark.parametrize("text", ["person,a,b,c", "person,a,b,c\n", "\n\nperson,a,b,c\r\n\n"])
def test_a_header_alone_has_no_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "records.csv"
    path.write_text(text)
    found = line_counts(RecordsConfig(source=path), (), OFFERED, "person")
    assert (found.lines, found.used, found.lost, found.repeated, found.cells) == (0, 0, (), 0, ())


Row = tuple[str | None, ...]  # a person, a, b and c


def rows(rng: Random) -> list[Row]:
    """Rows with and without a person, some of them with a word in place of a number."""
    people = [*(f"p{number}" for number in range(6)), None, "NA", "gone"]
    return [
        (rng.choice(people), *(rng.choice(["1", "2", None, "NA", "x", "1,5"]) for _ in range(3)))
        for _ in range(rng.randrange(30))
    ]


def write(path: Path, body: list[Row]) -> RecordsConfig:
    names = ("person", "a", "b", "c")
    if path.suffix == ".xlsx":
        with xlsxwriter.Workbook(str(path)) as book:
            sheet = book.add_worksheet()
            for number, row in enumerate([names, *body]):
                sheet.write_row(number, 0, list(row))
    elif path.suffix == ".parquet":
        columns = list(zip(*body, strict=True)) or [(), (), (), ()]
        parquet.write_table(pa.table([pa.array(one, pa.string()) for one in columns], names=names), path)
    else:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE t (person TEXT, a TEXT, b TEXT, c TEXT)")
            database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", body)
    return RecordsConfig(source=path, missing=("gone",))


@pytest.mark.parametrize("ending", [".xlsx", ".parquet", ".db"])
def test_rows_of_other_sources_are_used_or_lost(tmp_path: Path, ending: str) -> None:
    """A row has all its cells there, so that only its person may be missing; of several rows of a person in a
    database, which has no first one, those with other numbers are lost."""
    for seed in range(40):
        body = [row for row in rows(Random(seed)) if ending != ".xlsx" or any(row)]
        found = agreed_counts(write(tmp_path / f"r{ending}", body))
        named = [row for row in body if row[0] is not None and not is_missing(row[0])]
        lost = Counter({PERSON: len(body) - len(named)})
        used = named if ending != ".db" else list(records_of(named))
        lost[OTHER] = len(named) - len(used)
        assert found.lines == len(body) == found.used + sum(lost.values()), seed
        assert {one.reason: one.lines for one in found.lost} == dict(+lost), seed
        words = Counter(
            name for row in used for name, cell in zip("abc", row[1:], strict=True) if is_word(cell)
        )
        assert {one.column: one.cells for one in found.cells} == dict(words), seed


def records_of(named: list[Row]) -> Iterator[Row]:
    """Specification: the rows of a sorted result whose numbers are those of their person's first row."""
    first = dict[str | None, list[float | None]]()
    for row in sorted(named, key=lambda row: [(cell is not None, (cell or "").encode()) for cell in row]):
        numbers = [value(cell) for cell in row[1:]]
        if first.setdefault(row[0], numbers) == numbers:
            yield row


def value(cell: str | None) -> float | None:
    return None if cell is None or is_missing(cell) or is_word(cell) else float(cell)


def is_word(cell: str | None) -> bool:
    return cell is not None and not is_missing(cell) and not is_number(cell)


def test_rows_of_a_person_in_a_select_are_lost_unless_a_rule_says_how_to_reduce_them(tmp_path: Path) -> None:
    path, sql = tmp_path / "records.csv", "SELECT * FROM records"
    path.write_text("person,a,b,c,day\np,1,2,3,1\np,1,2,3,2\np,1,2,4,3\nq,1,2,3,4\nq,5,2,3,5\np,1\n")
    found = line_counts(
        RecordsConfig(source=path, sql=sql), (), OfferedColumns(allowed=("a", "b", "c")), "person"
    )
    assert [(one.reason, one.lines, one.first) for one in found.lost] == [
        (FEW, 1, ("line 7",)), (OTHER, 2, ("row 3 of the view", "row 5 of the view")),
    ]  # fmt: skip
    assert (found.lines, found.used) == (6, 3)
    rules = tuple(ColumnRule(name=name, rows=Rows.MEAN) for name in "ac")
    offered = OfferedColumns(allowed=("a", "b", "c"))
    for config in (RecordsConfig(source=path, sql=sql), RecordsConfig(source=path)):
        ruled = line_counts(config, rules, offered, "person")
        assert [one.reason for one in ruled.lost] == [FEW]

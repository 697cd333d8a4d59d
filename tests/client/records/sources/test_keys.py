"""Keys of [records] that change what the same bytes mean: words for "missing", a later header, the person's
own name, the only table of a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Column
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import BadRecords, Dialect, RecordsConfig
from tests.client.records import support as records
from tests.client.site.support import a_study

STUDY, PERSONS = a_study(), a_study(person_column="patient")


def column(name: str) -> Column:
    return replace(STUDY.columns[0], name=name)


def text(folder: Path, content: str | bytes, **keys: Any) -> RecordsConfig:
    path = folder / "records.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return RecordsConfig(source=path, **keys)


def rows(config: RecordsConfig, **options: Any) -> list[list[int]]:
    return records.read(config, options.pop("study", STUDY), **options).rows.tolist()


@pytest.mark.parametrize("cell", ["-999", "-999.0", " nd ", "ND"])
@pytest.mark.parametrize("rules", [(), (ColumnRule(name="b", missing=("x",)),)])
def test_words_of_the_whole_file_are_missing_in_every_column(
    tmp_path: Path, cell: str, rules: tuple[ColumnRule, ...]
) -> None:
    body = "a,b,c\n1,2,3\n{0},2,3\n1,{0},3\n1,2,{0}\n4,5,6\n"
    found = rows(text(tmp_path, body.format(cell), missing=("-999", "nd")), rules=rules)
    assert found == rows(text(tmp_path, body.format("NA")), rules=rules)


def test_a_word_of_the_whole_file_names_no_person(tmp_path: Path) -> None:
    config = text(tmp_path, "patient,a,b,c\n-999,1,2,3\n-999,4,5,6\np,7,8,9\n", missing=("-999",))
    assert records.read(config, PERSONS, unreadable=lambda one: None).persons == 1


def test_lines_before_the_header_are_no_records(tmp_path: Path) -> None:
    body, title = "a,b,c\n1,2,3\n\n4,5,6\n", '\ufeff"Export, of\n1,2,3\n\n'
    plain = rows(text(tmp_path, body))
    for ends in ("\n", "\r\n", "\r"):
        content = (title + body).replace("\n", ends)
        assert rows(text(tmp_path, content, header_line=4)) == plain
        broken = content + f"1,2{ends}"
        assert rows(text(tmp_path, broken, header_line=4), unreadable=lambda one: None) == plain
    with pytest.raises(BadRecords, match=r"line 8: the line has not 3 cells"):
        rows(text(tmp_path, title + body + "1,2\n", header_line=4))


def test_units_below_the_header_are_no_record(tmp_path: Path) -> None:
    body, plain = "a,b,c\n\n[mm],,µl\n{}1,2,3\n\n4,5,6\n", rows(text(tmp_path, "a,b,c\n1,2,3\n4,5,6\n"))
    for ends in ("\n", "\r\n", "\r"):
        for broken in ("", "7,8\n", "7,8,µ\n"):
            content = body.format(broken).replace("\n", ends).encode("latin-1")
            found = list[str | None]()
            config = text(tmp_path, content, units_below_header=True)
            assert rows(config, unreadable=found.append) == plain
            assert found == ([None] if broken else [])
            if broken:
                with pytest.raises(BadRecords, match="line 4: the line has"):
                    rows(config)
    only = text(tmp_path, "a,b,c\nmm,mm,mm\n", units_below_header=True)
    assert rows(only) == []


@pytest.mark.parametrize(
    "row",
    [
        *("p1;NA;;7", "p1;g/l;;7,5", "p1;g/l;;-0.5", "p1;g/l;;<5", "p1;g/l;;.5", "p1;g/l;;12 mg/l", "p1;;;"),
        *("p1;ja;nein;", "p1;g/l;;1.234,5", "p1;g/l;2024-01-02;", "p1;g/l;2024/01/02;", "p1;g/l;01.02.2024;"),
        *("p1;0x10;inf;", ";1;1;1", "p1;m;;"),
    ],
)  # fmt: skip
def test_a_record_is_never_taken_for_units(tmp_path: Path, row: str) -> None:
    dialect, content = Dialect(separator=";"), f"patient;a;b;c\n{row}\np2;4;5;6\n"
    with pytest.raises(BadRecords, match="the line below the header is no row of units, which"):
        rows(text(tmp_path, content, dialect=dialect, units_below_header=True))


@pytest.mark.parametrize(
    "row", ["ID;mg/l;10^9/L;1", ";[kg/m²];0/1;TT.MM.JJJJ", ";%;1-5;0 = no", "Nr.;(mm);;1 | 2"]
)
def test_a_row_of_units_may_tell_how_columns_are_coded(tmp_path: Path, row: str) -> None:
    config = text(
        tmp_path, f"patient;a;b;c\n{row}\np2;4;5;6\n", dialect=Dialect(separator=";"), units_below_header=True
    )
    assert len(rows(config)) == 1


def test_rows_of_a_sheet_before_the_header_are_no_records(tmp_path: Path) -> None:
    path, body = tmp_path / "records.xlsx", [["a", "b", "c"], [1, 2, 3], [4, 5, 6]]
    plain = rows(text(tmp_path, "a,b,c\n1,2,3\n4,5,6\n"))
    for units in ([], [["mm", None, "1"]]):
        with xlsxwriter.Workbook(path) as book:
            sheet = book.add_worksheet()
            for number, row in enumerate([["Laboratory", None, "x"], [], body[0], *units, *body[1:]]):
                sheet.write_row(number, 0, row)
        config = RecordsConfig(source=path, header_line=3, units_below_header=bool(units))
        assert rows(config) == plain
    with pytest.raises(BadRecords, match="row 5 is no row of units, which units_below_header"):
        rows(RecordsConfig(source=path, header_line=4, units_below_header=True))


def test_the_person_column_may_have_another_name_in_the_records(tmp_path: Path) -> None:
    body = "{},a,b,c\np,1,2,3\np,4,5,6\nq,7,8,9\n"
    own = text(tmp_path, body.format("PatNr"), person="PatNr")
    found = rows(own, study=PERSONS)
    assert found == rows(text(tmp_path, body.format("patient")), study=PERSONS)
    numbers = a_study(columns=(*STUDY.columns, column("PatNr")))
    with pytest.raises(RequestError) as caught:
        rows(own, study=numbers)
    assert caught.value.code is Code.POLICY
    absent = r"person column 'patient' is not in the records. Write \[records\] person = \"ITS NAME THERE\""
    with pytest.raises(BadRecords, match=absent):
        rows(text(tmp_path, body.format("MRN")), study=PERSONS)


def test_the_keys_change_the_version_of_the_records(tmp_path: Path) -> None:
    body = "a,b,c\n1,1,1\n"
    keys: list[dict[str, Any]] = [{}, {"missing": ("-9",)}, {"missing": ("-8",)}, {"person": "a person"}]
    assert len({records.read(text(tmp_path, body, **one), STUDY).file for one in keys}) == 4
    units = text(tmp_path, body, units_below_header=True)
    assert units.reading_digest != text(tmp_path, body).reading_digest


def sqlite_file(folder: Path, *tables: str) -> Path:
    path = folder / "records.db"
    with closing(sqlite3.connect(path)) as database, database:
        for table in tables:
            database.execute(f'CREATE TABLE "{table}" (id INTEGER PRIMARY KEY AUTOINCREMENT, a, b, c)')
            database.execute(f'INSERT INTO "{table}" (a, b, c) VALUES (1, 2, 3)')
    return path


def test_the_only_table_of_a_sqlite_file_is_read(tmp_path: Path) -> None:
    config = RecordsConfig(source=sqlite_file(tmp_path, "the measurements"))
    assert rows(config) == rows(text(tmp_path, "a,b,c\n1,2,3\n"))


def test_several_tables_of_a_sqlite_file_are_listed(tmp_path: Path) -> None:
    with pytest.raises(BadRecords, match=r"has 2 tables: labs, visits. Name one in `table`"):
        rows(RecordsConfig(source=sqlite_file(tmp_path, "visits", "labs")))


def test_an_absent_sql_file_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(BadRecords, match=r"sql_file .*absent.sql does not exist"):
        rows(text(tmp_path, "a,b,c\n1,2,3\n", sql_file=tmp_path / "absent.sql"))


@pytest.mark.parametrize(("header", "near"), [
    ("Sys BP", "Sys BP"), ("sys_bp [mmHg]", "sys_bp"), ("SystBP", "SystBP"), ("age", None),
    ("bp_sys", "bp_sys"),
])  # fmt: skip
def test_a_column_that_is_not_there_has_a_similar_name_beside_it(
    tmp_path: Path, header: str, near: str | None
) -> None:
    study = a_study(columns=(column("SysBP"), column("other")))
    todo = "Add it" if near is None else f"Did you mean '{near}'"
    with pytest.raises(BadRecords, match=f"column 'SysBP' is not in the records. {todo}"):
        rows(text(tmp_path, f"{header},other\n1,2\n"), study=study)

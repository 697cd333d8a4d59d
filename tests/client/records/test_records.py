"""Records from files: found by name, missing is missing, and no message ever holds a value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from eigenveil.errors import Code, RequestError
from eigenveil.site.record_view import to_grid
from eigenveil.study.study import Column, Missing, Study
from eigenveil_client.records.sources import delimited_lines
from eigenveil_client.records.summary import Records
from eigenveil_client.records.tables.cells import OnUnreadable, ignore
from eigenveil_client.records.tables.source import BadRecords
from tests.client.records import support as records
from tests.client.site.support import a_study
from tests.support import Patch

STUDY = a_study()
SECRET = "8.7654321"


def csv(folder: Path, text: str | bytes, name: str = "records.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def columns(names: str, fill: float | None = None) -> tuple[Column, ...]:
    return tuple(Column(name=n, unit="mmol/L", lower=0, upper=10, fill=fill) for n in names)


def grid(rows: list[list[float]], study: Study = STUDY) -> list[list[int]]:
    return to_grid(np.array(rows), study).tolist()


@pytest.mark.parametrize("text", [
    "a,b,c\n1,2,3\n4,5,6\n",
    "c,x,a,b\n3,,1,2\n6,text,4,5\n",
    "\ufeffa,b,c\r\n1,2,3\r\n4,5,6",
    "a, b [mmol/L],c [mmol/L] \n 1 ,+2,3e0\n\n4.0,5,6\n",
    'a,b,c,note\n1,2,3,"two, one"\n"4",5,6,5" pipe\n',
])  # fmt: skip
def test_columns_are_found_by_name_and_put_in_the_studys_order(tmp_path: Path, text: str) -> None:
    assert records.load(csv(tmp_path, text), STUDY).tolist() == grid([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("cell", ["", " ", "NA", "na", "NaN", "N/A", "null", "-nan"])
def test_missing_cells_follow_the_studys_rule(tmp_path: Path, cell: str) -> None:
    path = csv(tmp_path, f"a,b,c\n1,{cell},3\n4,5,6\n")
    assert records.load(path, STUDY).tolist() == grid([[4, 5, 6]])
    filled = a_study(columns=columns("abc", 7), missing=Missing.FILL)
    assert records.load(path, filled).tolist() == grid([[1, 7, 3], [4, 5, 6]])


@pytest.mark.parametrize(("text", "message"), [
    ("a,b\n1,2\n", "column 'c' is not in the records. Add it"),
    ("a;b;c\n1;2;3\n", "is the file separated by commas?"),
    ("a,b,c,c [g/L]\n1,2,3,4\n", "2 columns 'c'"),
    ("a,b [mg/dL],c\n1,2,3\n", "column 'b' is in 'mg/dL' in the records and in 'mmol/L' in the study"),
    (f"a,b,c\n1,2,3\n1,{SECRET}x,3\n1,y,3\n", "column 'b', line 3: text instead of a number"),
    (f"a,b,c\n1,2,3\n\n1,2,{SECRET}-\n", "column 'c', line 4: text instead"),
    (f'a,n,b,c\n1,"x\ny",2,3\n1,,2,{SECRET}\n', "a quoted cell spans lines (line 2)"),
    ("a,b,c\n1,2,inf\n", "column 'c', line 2: an infinite number"),
    ("a,b,c\n1,2,3\n1,1e999,3\n", "column 'b', line 3: an infinite number"),
    (f"a,b,c\n1,2,3\n{SECRET},2\n", "line 3: the line has not 3 cells"),
    (f"a,b,c\n1,2,3\n1,{SECRET}\xff,3\n".encode("latin-1"), "line 3: the line has bytes that are not utf-8"),
    (f"a,b,c,n\n1,2,3,x\n1,2,3,{SECRET}\xff\n".encode("latin-1"), "bytes that are not utf-8"),
    (b"\xff,b,c\n", "the first line"),
    ("", "is empty"),
])  # fmt: skip
def test_a_bad_file_is_refused_by_place_not_by_value(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        records.load(csv(tmp_path, text), STUDY)
    assert caught.value.code is Code.BAD_DATA
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("word", ["", "NA", "nan", "-NaN", "null", "N/A"])
def test_unnamed_rows_are_no_person(tmp_path: Path, word: str) -> None:
    path = csv(tmp_path, f"person,a,b,c\n{word},1,2,3\n{word},4,5,6\nx,7,8,9\n")
    result: list[str | None] = []
    rows = records.load(path, a_study(person_column="person"), unreadable=result.append)
    assert rows.tolist() == grid([[7, 8, 9]])
    assert result


def test_unnamed_rows_of_parquet_are_no_person(tmp_path: Path) -> None:
    path, numbers = tmp_path / "records.parquet", pa.array([1.0, 2.0, 3.0])
    people = pa.array([None, None, 7], pa.int64())
    parquet.write_table(pa.table({"person": people, "a": numbers, "b": numbers, "c": numbers}), path)
    found = records.read(path, a_study(person_column="person"), unreadable=ignore)
    assert (found.rows.tolist(), found.persons) == (grid([[3, 3, 3]]), 1)


@pytest.mark.parametrize("lines", [
    ['1,2,3,"5 inch', "4,5,6,x"], ["1,2,3,x", '4,5,6,"y', "7,8,9,z"], ['1,2,3,"x', '4,5,6,y"', "7,8,9,z"],
    ['"1', '",2,3,x', "4,5,6,y"],
])  # fmt: skip
def test_a_quote_that_would_swallow_other_records_is_refused(tmp_path: Path, lines: list[str]) -> None:
    path = csv(tmp_path, "\n".join(["a,b,c,note", *lines]) + "\n")
    with pytest.raises(RequestError, match="spans lines"):
        records.load(path, STUDY)


@pytest.mark.parametrize("cell", ["n.a.", ">500", "inf", "-Infinity", "1e999", "0x10", "1,5", "7 8", "½"])
@pytest.mark.parametrize("rule", list(Missing))
def test_an_unreadable_cell_is_missing_if_the_caller_allows(tmp_path: Path, cell: str, rule: Missing) -> None:
    study = a_study(columns=columns("abc", 7), missing=rule)
    lines = [f"{number % 10},{number % 7},3" for number in range(50)]
    result: list[str | None] = []

    def load(line: str) -> list[list[int]]:
        path = csv(tmp_path, "\n".join(["a,b,c", *lines[:20], line, *lines[20:]]) + "\n")
        return records.load(path, study, unreadable=result.append).tolist()

    unreadable = load(f'1,"{cell}",3')
    assert result == ["b"]
    assert unreadable == load("1,NA,3")
    assert len(result) == 1


def test_every_other_cell_is_read_as_if_the_bad_ones_were_not_there(tmp_path: Path) -> None:
    """[P1]: one record's bad cell must not change how another record's cell is read."""
    good = ["1", " +2", "-3e0 ", "4.", ".5", "6E-1", "7.000000000000000001", "8_0", "NA", "nan"]
    bad = ["x", "x", "y", "<1", "inf", "x", "x", "y", "<1", "inf"]
    path = tmp_path / "records.csv"
    alone = []
    for cell in good:
        path.write_text(f"a,b,c\n{cell},1,1\n")
        alone += records.load(path, STUDY, unreadable=ignore).tolist()
    mixed = [cell for pair in zip(good, bad, strict=True) for cell in pair]
    path.write_text("a,b,c\n" + "".join(f"{cell},1,1\n" for cell in mixed))
    assert (records.load(path, STUDY, unreadable=ignore).tolist(), len(alone)) == (alone, 7)


STRANGE = {
    "list": pa.array([[1, 2]] * 3),
    "struct": pa.array([{"x": 1}] * 3),
    "map": pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"\xff\xfe"] * 3),
    "binary-words": pa.array([b"8.7654321\xff"] * 3).dictionary_encode(),
    "time": pa.array([1] * 3, pa.time32("s")),
}


@pytest.mark.parametrize("kind", list(STRANGE))
@pytest.mark.parametrize("unreadable", [None, ignore])
def test_a_column_of_another_type_is_refused_by_name(
    tmp_path: Path, kind: str, unreadable: OnUnreadable | None
) -> None:
    path = tmp_path / "records.parquet"
    numbers = pa.array([1.0, 2.0, 3.0])
    parquet.write_table(pa.table({"b": STRANGE[kind], "a": numbers, "c": numbers, "x": numbers}), path)
    names = kind in ("time", "binary", "binary-words")  # these may name a person
    studies = [STUDY] + ([] if names else [a_study(columns=columns("acx"), person_column="b")])
    for study in studies:
        with pytest.raises(BadRecords, match="column 'b'") as caught:
            records.load(path, study, unreadable=unreadable)
        assert caught.value.about == "b"
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_invalid_text_costs_its_own_record_only(tmp_path: Path, kind: pa.DataType, words: bool) -> None:
    path, result = tmp_path / "records.parquet", list[str | None]()
    cells = pa.array([b"1", SECRET.encode() + b"\xff", b"2"]).view(kind)
    column = cells.dictionary_encode() if words else cells
    numbers = pa.array([1.0, 2.0, 3.0])
    parquet.write_table(pa.table({"b": column, "a": numbers, "c": numbers, "x": numbers}), path)
    persons = a_study(columns=columns("acx"), person_column="b")
    for study in [persons] if kind == pa.binary() else [persons, STUDY]:
        with pytest.raises(BadRecords, match="column 'b', row 2: text that is not UTF-8") as caught:
            records.load(path, study)
        assert SECRET not in str(caught.value)
        result.clear()
        assert len(records.load(path, study, unreadable=result.append)) == 2
        assert set(result) == {"b" if study is STUDY else None}  # a person's name makes the line a lost one


BROKEN = [
    b"1", b"\xff", b"1,2,3,\xff", b"1,2,3,4", b"\xff,2,3", b"1,\xc3,3", b"\xed\xa0\x80,2,3", b'"",2',
    b"1,2,3\xfe", b"x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("line", BROKEN)
@pytest.mark.parametrize("person", [None, "a"])
def test_a_broken_line_costs_its_own_record(
    tmp_path: Path, monkeypatch: Patch, line: bytes, person: str | None
) -> None:
    study = a_study(columns=columns("bc"), person_column=person)
    lines = [b"%d,%d,3" % (number, number % 7) for number in range(100, 160)]

    def read(lines: list[bytes]) -> Records:
        path = csv(tmp_path, b"\n".join([b"a,b,c", *lines]) + b"\n")
        return records.read(path, study, unreadable=result.append)

    for size in (64, 300, 1 << 20):
        monkeypatch.setattr(delimited_lines, "CHUNK_BYTES", size)
        for place in (0, 30, 60):
            result: list[str | None] = []
            found, without = read([*lines[:place], line, *lines[place:]]), read(lines)
            assert {row.tobytes() for row in without.rows} >= {row.tobytes() for row in found.rows}
            assert 0 <= len(found.rows) - len(without.rows) <= 1
            assert 0 <= found.persons - without.persons <= 1
            assert result or found.persons == 61


def test_persons_are_counted_whatever_a_study_looks_at(tmp_path: Path) -> None:
    lines = ["x,1,,1", "x,2,2,2", "y,,,", ",4,4,4", "z,5,5,"]
    path = csv(tmp_path, "\n".join(["person,a,b,c", *lines]) + "\n")
    for person, persons in [(None, 5), ("person", 3)]:
        for names in ("a", "b", "c", "ab", "abc"):
            for rule in Missing:
                study = a_study(columns=columns(names, 0), person_column=person, missing=rule)
                found = records.read(path, study, unreadable=ignore)
                assert found.persons == persons >= len(found.rows)

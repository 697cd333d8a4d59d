"""Views: kept once, in the order of what they hold, and noticed when they are another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.records.sources.view import RowsDigest, View
from eigenveil_client.records.tables.source import COMMAS, BadRecords, LeaveOut

SCHEMA = pa.schema([("person", pa.int64()), ("x", pa.string())])
CELLS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.sampled_from(["", "a", "ab", "b"])), max_size=8)


def batch(rows: list[tuple[int, str | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"person": p, "x": x} for p, x in rows], SCHEMA)


@dataclass
class Asked:
    """A SELECT whose results are these, one after the other, as often as it is run."""

    batches: list[pa.RecordBatch]
    promised: pa.Schema = field(default_factory=lambda: SCHEMA)
    left_out: int = 0
    runs: int = 0

    def schema(self) -> pa.Schema:
        return self.promised

    def rows(self, leave_out: LeaveOut) -> Iterator[pa.RecordBatch]:
        self.runs += 1
        yield from self.batches
        if self.left_out:
            leave_out(self.left_out)


def test_a_select_runs_once_however_often_it_is_read_and_not_for_its_columns() -> None:
    query = Asked([batch([(1, "a"), (2, None)]), batch([(3, "b")])])
    view = View(query, COMMAS)
    assert (view.headers, view.schema(), query.runs) == (("person", "x"), SCHEMA, 0)
    for _ in range(2):
        assert pa.Table.from_batches(view.batches(["x"], None)).to_pydict() == {"x": ["a", None, "b"]}
        assert view.digest() == View(query, COMMAS).digest()
    assert query.runs == 1 + 2


@given(CELLS, CELLS, st.integers(0, 8))
def test_the_digest_is_of_the_rows_whatever_batches_they_come_in(
    rows: list[tuple[int, str | None]], others: list[tuple[int, str | None]], cut: int
) -> None:
    def value(*batches: pa.RecordBatch) -> bytes:
        digest = RowsDigest(SCHEMA)
        for one in batches:
            digest.take(one)
        return digest.value()

    behind = batch(others + rows).slice(len(others))
    assert value(batch(rows)) == value(batch(rows[:cut]), batch(rows[cut:])) == value(behind)
    assert (value(batch(rows)) == value(batch(others))) == (rows == others)


def test_a_promise_of_one_row_a_person_is_held_to_it() -> None:
    rows = [batch([(1, "a"), (2, "a")]), batch([(3, "a"), (1, "b")])]
    assert len(View(Asked(rows), COMMAS).digest()) == 32
    with pytest.raises(BadRecords, match="two rows with one 'person'") as caught:
        View(Asked(rows), COMMAS, one_row_per="person").digest()
    assert caught.value.about == "person"
    with pytest.raises(BadRecords, match="column 'patient' is not in"):
        View(Asked(rows), COMMAS, one_row_per="patient").digest()


def test_lines_that_are_left_out_beneath_are_told_of_each_time_or_refused() -> None:
    result: list[int] = []
    view = View(Asked([batch([(1, "a")])], left_out=3), COMMAS)
    for _ in range(2):
        assert len(list(view.batches(["x"], result.append))) == 1
    assert result == [3, 3]
    with pytest.raises(BadRecords, match="3 lines have not as many cells"):
        list(view.batches(["x"], None))


def test_columns_that_change_while_a_select_runs_and_names_that_are_there_twice_are_refused() -> None:
    changed = Asked([batch([(1, "a")])], promised=pa.schema([("person", pa.int64()), ("x", pa.int64())]))
    with pytest.raises(BadRecords, match="columns of the SELECT changed while it ran") as caught:
        View(changed, COMMAS).digest()
    assert caught.value.about == "schema"
    twice = Asked([], promised=pa.schema([("x", pa.int64()), ("x", pa.int64())]))
    with pytest.raises(BadRecords, match="two columns 'x'"):
        View(twice, COMMAS).schema()

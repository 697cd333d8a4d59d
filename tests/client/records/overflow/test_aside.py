"""Persons for whom memory has no room are who they would be if it had: each once, with the same records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_client.records.recoding import gather, persons
from eigenveil_client.records.recoding.persons import PARTITIONS, partition_of
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.scratch_files import Scratch
from tests.client.records.recoding.support import made

RULES = (
    [ColumnRule(name="a"), ColumnRule(name="b")],
    [
        ColumnRule(name="a", rows=Rows.MEAN),
        ColumnRule(name="b", rows=Rows.LAST, by="day", dates="%d"),
        ColumnRule(name="n", source="a", rows=Rows.COUNT),
        ColumnRule(name="least", source="b", rows=Rows.MINIMUM),
    ],
)
ROW = st.tuples(
    st.sampled_from(["p", "q", "anna", "bert", "ä", "", "NA", *map(str, range(30))]),
    st.sampled_from(["1", "2.5", "-3", "", "x", "1e9"]),
    st.sampled_from(["4", "0.1", "", "y"]),
    st.sampled_from(["01", "02", "09", "", "z"]),
)


def records(folder: Path, rules: list[ColumnRule], room: int, batch: int) -> list[tuple[object, ...]]:
    """What persons are, in no order, where memory has room for that many at each level."""
    width = len(rules) + sum(rule.by is not None for rule in rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "GATHERED", room * (gather.A_PERSON + gather.A_NUMBER * width))
        patch.setattr(persons, "BUFFERED", batch)
        values, unreadable = made(folder / "records.csv", rules, "who")
    return sorted(zip(map(repr, values.tolist()), map(repr, unreadable.tolist()), strict=True))


@pytest.mark.parametrize("rules", RULES, ids=["first-in-file", "gathered"])
@given(
    rows=st.lists(ROW, min_size=1, max_size=120),
    room=st.integers(1, 12),
    batch=st.sampled_from([1, 500, 10**6]),
)
def test_spilled_persons_equal_those_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    rules: list[ColumnRule],
    rows: list[tuple[str, ...]],
    room: int,
    batch: int,
) -> None:
    folder = tmp_path_factory.mktemp("aside")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eigenveil_client.records.sources.delimited.BLOCK_BYTES", 64)
        text = "\n".join(["who,a,b,day", "p,1,4,01", *(",".join(row) for row in rows)]) + "\n"
        (folder / "records.csv").write_text(text)
        assert records(folder, rules, room, batch) == records(folder, rules, 10**6, batch)


def test_parts_come_out_even_and_those_of_one_part_are_spread_over_the_next_level() -> None:
    names = pa.array([f"patient-{number:08}" for number in range(100_000)], pa.string())
    first = partition_of(names, 0)
    counts = np.bincount(first, minlength=PARTITIONS)
    mean = len(names) / PARTITIONS  # a Poisson's 10 standard deviations: false alarm below 1e-15
    assert abs(counts - mean).max() < 10 * np.sqrt(mean)
    inside = names.take(pa.array(np.flatnonzero(first == first[0])))
    assert len(set(partition_of(inside, 1).tolist())) > len(inside) / 2


def test_spilled_rows_leave_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "grids"
    remaining = Scratch(folder=folder)
    one = persons.SpilledRows(remaining, 1, 0)
    column = np.ones(2), np.zeros(2, dtype=bool)
    one.add(persons.NamedRows(names=pa.array(["a", "b"]), columns=[column]))
    assert sum(len(rows.names) for part in one.partitions() for rows in part) == 2
    assert list(folder.iterdir()) == []
    one.close()

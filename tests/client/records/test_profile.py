"""A column's profile at its site is numpy's, of one value a person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from eigenveil_client.records.column_quality import (
    BINS,
    MOST_FREQUENT,
    PROFILE_QUANTILES,
    Bounds,
    ColumnProfile,
)
from eigenveil_client.records.discovery import profiles
from eigenveil_client.records.discovery.profiles import profile
from eigenveil_client.records.recoding.rule import ColumnRule, Rows
from eigenveil_client.records.tables.cells import Reading
from eigenveil_client.records.tables.source import BadRecords
from tests.client.records.genotypes.support import counted, genotypes, plink, table
from tests.client.records.support import open_table
from tests.support import Patch

RULES = (ColumnRule(name="worst", source="a", rows=Rows.MAXIMUM), ColumnRule(name="group", levels=("x", "y")))


def seen(path: Path, columns: dict[str, Bounds | None], person: str | None) -> list[ColumnProfile]:
    return list(profile(Reading(table=open_table(path), unreadable=lambda _: None), RULES, columns, person))


@pytest.mark.parametrize("at_once", [1, 2, 16])
def test_a_profile_is_of_one_value_a_person(tmp_path: Path, monkeypatch: Patch, at_once: int) -> None:
    monkeypatch.setattr(profiles, "AT_ONCE", at_once)
    path = tmp_path / "records.csv"
    lines = [f"p{number % 40},{number % 23},{'?' if number % 40 == 5 else number}" for number in range(400)]
    path.write_text("person,a,b,group\n" + "".join(f"{line},x\n" for line in lines))
    columns: dict[str, Bounds | None] = {"a": (3.0, 20.0), "b": None, "worst": (0.0, 1e6), "group=y": None}
    a, b, worst, group = seen(path, columns, "person")
    first = np.arange(40) % 23
    values, times = np.unique(first, return_counts=True)
    assert (sorted(a.frequent)[:3], len(a.frequent)) == ([(0.0, 2), (1.0, 2), (2.0, 2)], MOST_FREQUENT)
    assert dict(a.frequent).items() <= dict(zip(values.tolist(), times.tolist(), strict=True)).items()
    assert a.quality is not None
    assert (a.quality.below, a.quality.above) == (int((first < 3).sum()), int((first > 20).sum()))
    assert a.histogram == tuple(np.histogram(first, BINS, (3.0, 20.0))[0].tolist())
    known = np.delete(np.arange(40.0), 5)
    assert b.quality is not None
    assert (b.quality.missing, b.quality.unreadable, b.quality.outside) == (1, 1, 0)
    assert (b.span, sum(b.histogram)) == ((0.0, 39.0), 39)
    assert set(b.quantiles) <= set(known)
    assert [int((known <= q).sum()) for q in b.quantiles] == [
        max(1, int(np.ceil(share * 39))) for share in PROFILE_QUANTILES
    ]
    assert worst.quality is not None
    assert (worst.frequent[0][0], group.frequent) == (22.0, ((0.0, 40),))


def test_a_column_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    lists = pa.array([[1], [2]])
    parquet.write_table(pa.table({"a": [1e308, -1e308], "b": lists, "c": ["", ""], "person": [1, 2]}), path)
    a, b, c, d = seen(path, {"a": None, "b": None, "c": None, "d": None}, None)
    assert (sum(a.histogram), a.problem) == (2, None)
    assert "column 'b' holds" in str(b.problem)
    assert "column 'd' is not in" in str(d.problem)
    assert c.quality is not None
    assert (c.quality.missing, c.frequent, c.span, c.problem) == (2, (), None, None)
    with pytest.raises(BadRecords, match="column 'who' is not in"):
        seen(path, {"a": None}, "who")
    broken = tmp_path / "records.csv"
    broken.write_text('a,b\n1,"2\n')
    with pytest.raises(BadRecords, match="spans lines"):
        seen(broken, {"a": None}, None)


def test_genotypes_are_profiled_as_numbers(tmp_path: Path, monkeypatch: Patch) -> None:
    counts = genotypes(70, 40)
    columns: dict[str, Bounds | None] = dict.fromkeys([*counted(40), "rs99_A"])
    due = seen(table(tmp_path / "a.parquet", counts, pa.float64()), columns, "iid")
    path = plink(tmp_path / "a.bed", counts)
    for cells in (1, 70 * 18, 2**20):
        monkeypatch.setattr(profiles, "CELLS", cells)
        assert seen(path, columns, "iid") == due

"""How good a column is, as a hospital's files are: counted before, and after what its rules mend."""

from __future__ import annotations

from pathlib import Path

from eigenveil.study.study import Column
from eigenveil_client.records import records
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import RecordsConfig
from tests.client.site.support import a_study


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_as_hospitals_break_them_are_counted_and_can_be_mended(tmp_path: Path) -> None:
    """Decimal commas, another unit and a number for missing: then the grid is that of the pooled file."""
    bounds = {"weight": (20, 250), "cholesterol": (50, 500), "systolic": (50, 250)}
    columns = [Column(name=name, unit="1", lower=low, upper=high) for name, (low, high) in bounds.items()]
    study = a_study(columns=tuple(columns))
    people = [(60 + n / 8, 150 + 3 * n, 100 + n if n % 4 else None) for n in range(40)]
    whole = [f"{weight},{fat},{'' if high is None else high}" for weight, fat, high in people]
    broken = [
        f'"{weight}",{fat / 38.665!r},{-999 if high is None else high}'.replace(".", ",", 1)
        for weight, fat, high in people
    ]
    pooled, own = (
        written(tmp_path / f"{name}.csv", [",".join(bounds), *lines])
        for name, lines in [("pooled", whole), ("own", broken)]
    )
    counted = records.read(RecordsConfig(source=own), study, unreadable=lambda _: None).quality
    assert [(one.unreadable, one.below, one.above) for one in counted] == [(40, 0, 0), (0, 40, 0), (0, 10, 0)]
    rules = (
        ColumnRule(name="weight", decimal=","),
        ColumnRule(name="cholesterol", factor=38.665),
        ColumnRule(name="systolic", missing=("-999",)),
    )
    mended = records.read(RecordsConfig(source=own), study, rules=rules)
    wanted = records.read(RecordsConfig(source=pooled), study)
    assert mended.rows.tolist() == wanted.rows.tolist()
    assert mended.quality == wanted.quality
    assert [one.missing for one in wanted.quality] == [0, 0, 10]
    assert mended.file != records.read(RecordsConfig(source=own), study, rules=rules[:2]).file

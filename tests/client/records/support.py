"""Records that are read in this process, and what a site's rules make of a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.recoding.gather import blocks
from eigenveil_client.records.recoding.parsing import column_parser
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.records import stream
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.summary import Records, gathered
from eigenveil_client.records.tables.cells import Reading
from eigenveil_client.records.tables.source import RecordsConfig, Source


def read(source: Path | RecordsConfig, study: Study, **options: Any) -> Records:
    """Return the records of a source, which may be a file with default settings."""
    config = source if isinstance(source, RecordsConfig) else RecordsConfig(source=source)
    return gathered(study, lambda sink: stream(config, study, sink, **options))


def load(path: Path, study: Study, **options: Any) -> GridRows:
    return read(path, study, **options).rows


Made = tuple[FloatArray, FloatArray]  # values and unreadable, (persons, columns)


def open_table(path: Path) -> Source:
    return open_source(RecordsConfig(source=path))


def rows_of(config: RecordsConfig) -> list[tuple[object, ...]]:
    """All cells of a source, row by row; broken lines are left out."""
    source = open_source(config)
    found = [batch.to_pylist() for batch in source.batches(list(source.headers), lambda _: None)]
    return [tuple(row.values()) for batch in found for row in batch]


def made(path: Path, rules: Sequence[ColumnRule], person: str | None = None) -> Made:
    """All columns of the rules, over what `path` holds; bad cells are missing."""
    reading = Reading(table=open_table(path), unreadable=lambda _: None)
    names = [name for rule in rules for name in rule.columns]
    measures = [column_parser(reading.headers, tuple(rules), name, None) for name in names]
    parts = list(blocks(reading, measures, person))
    return (
        np.concatenate([np.column_stack([values for values, _ in part]) for part in parts]),
        np.concatenate([np.column_stack([unread for _, unread in part]) for part in parts]),
    )


def column(path: Path, cells: Sequence[str], rule: ColumnRule) -> list[float | str]:
    """Value of each cell of a column under `rule`: a number, "missing" or "unreadable"."""
    path.write_text("\n".join([f"other,{rule.header}", *(f'1,"{cell}"' for cell in cells)]) + "\n")
    values, unread = made(path, [rule])
    words = ["unreadable" if bad else "missing" for bad in unread[:, 0]]
    return [
        word if np.isnan(value) else float(value) for value, word in zip(values[:, 0], words, strict=True)
    ]

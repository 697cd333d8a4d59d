"""A site's records, from a file or a view onto a study's grid, in this process: which is that of a reader
(`apart`), as what opens a file may die of it.

With a person column, the rows of one person are one record, by the site's rule for each column; without a
rule, the first row in the file stands for the person (also when it has a missing value and the study drops
it). What a record is depends on that person's rows alone, so a person more or less changes one record [P30].

How many persons a file holds, and how good a column is, is counted before a study's rules drop any of them:
nothing that an analyst chooses bears on it but a column's own bounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from eigenveil.errors import Code, RequestError
from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Study
from eigenveil_client.records.overflow.grid_file import whole
from eigenveil_client.records.overflow.scratch import SYSTEM, Scratch
from eigenveil_client.records.placing import placing
from eigenveil_client.records.quality import (
    NO_RANGES,
    ColumnQuality,
    Ranges,
    check_units,
)
from eigenveil_client.records.recoding.measure import measure
from eigenveil_client.records.recoding.rule import ColumnRule, digest
from eigenveil_client.records.sources.opening import open_source
from eigenveil_client.records.tables.cells import Reading, Unreadable
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.records.tables.table import Headers, Source, name_and_unit

LINES = "(whole lines)"  # no column's name, where columns are listed

Rules = tuple[ColumnRule, ...]
Keep = Callable[[GridRows], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What no study's choices bear on. `persons` are counted in the whole file, before a missing value drops
    any. `file` is the digest of all of the source, and of the rules if there are any.
    `quality` is what each column of the study is over all persons, in the study's order.
    """

    persons: int
    file: bytes
    quality: tuple[ColumnQuality, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records(Counted):
    """The same, and what a study sees of the file.

    Shape: rows (n, d), the usable records as stored integers of the study's grid, d in the study's order;
    n <= persons.
    """

    rows: GridRows


def load(path: Path, study: Study, *, unreadable: Callable[[Unreadable], None] | None = None) -> GridRows:
    """The rows of `read`, in a file of which nothing else is said and without a rule."""
    return read(RecordsConfig(source=path), study, unreadable=unreadable).rows


def read(
    said: RecordsConfig,
    study: Study,
    *,
    rules: Rules = (),
    plausible: Ranges = NO_RANGES,
    unreadable: Callable[[Unreadable], None] | None = None,
) -> Records:
    """The records of `stream`, all in memory."""
    return gathered(
        study,
        lambda keep: stream(said, study, keep, rules=rules, plausible=plausible, unreadable=unreadable),
    )


def gathered(study: Study, streamed: Callable[[Keep], Counted]) -> Records:
    """All that is streamed, in memory."""
    parts: list[GridRows] = []
    found = streamed(parts.append)
    rows = whole(parts, study.dimension, stored_dtype(study))
    return Records(rows=rows, persons=found.persons, file=found.file, quality=found.quality)


def stream(
    said: RecordsConfig,
    study: Study,
    keep: Keep,
    *,
    rules: Rules = (),
    plausible: Ranges = NO_RANGES,
    unreadable: Callable[[Unreadable], None] | None = None,
    scratch: Scratch = SYSTEM,
) -> Counted:
    """The records of a site, as the `rules` of the site say what their cells mean, counted against what is
    `plausible`; `keep` is handed the usable ones, block by block, as stored integers of the study's grid.
    However many there are, memory holds a block of them; where the rows of persons are gathered, what it has
    no room for lies in `scratch`.

    A cell that is empty, NA, N/A, NaN or null (in any case) is missing.

    A cell that is no finite number or no UTF-8 is an error, and a line with too many or too few cells; but
    where `unreadable` is given, it is told of them, such cells are missing, and such a line is left out, like
    a row that names no person. Either way what becomes of a record depends on that record alone.

    Raises:
        RequestError: code `site-policy`, a column in another unit than the site's, or named past its rule.
        BadRecords: naming the column and the line, or the file.
    """
    check_study(study, rules, plausible)
    reading = Reading(table=open_source(said), unreadable=unreadable)
    file = _digest(reading.table, rules)
    headers = Headers(reading.table.headers)
    measures = [measure(headers, rules, column.name, column.unit) for column in study.columns]
    placed = placing(reading, measures, study, plausible, scratch)
    persons = 0
    for block in placed.blocks():
        keep(block.rows)
        persons += block.persons
    pa.default_memory_pool().release_unused()  # hundreds of MiB, of wide tables
    return Counted(persons=persons, file=file, quality=placed.quality)


def check_study(study: Study, rules: Rules, plausible: Ranges) -> None:
    """Insist that a study means columns as the site does; nothing but settings and the study is compared.

    Raises:
        RequestError: code `site-policy`.
    """
    check_units(study.columns, plausible)
    _check_names(study, rules, plausible)


def _check_names(study: Study, rules: Rules, plausible: Ranges) -> None:
    """Insist that no study names a cell of the source past what the site says of it: by the header that a
    rule reads, or with a unit in brackets behind a name that has a rule or a plausible range."""
    columns = {name for rule in rules for name in rule.columns}
    raw, said = {rule.source for rule in rules if rule.source} - columns, columns | set(plausible)
    names = [(one.name, *name_and_unit(one.name)) for one in study.columns]
    past = [name for name, base, unit in names if name in raw or (unit is not None and base in said)]
    if past:
        raise RequestError(
            Code.POLICY,
            f"{', '.join(past)}: name a column as the site's rules do, and without the unit in brackets",
        )


def _digest(source: Source, rules: Rules) -> bytes:
    found = source.digest()
    return hashlib.sha256(found + digest(rules)).digest() if rules else found


class Constant:
    """Is handed the usable records, and finds the columns in which all sit on one grid point: for the
    operator's eyes, never sent."""

    def __init__(self, study: Study) -> None:
        self.records = 0
        self._names = [column.name for column in study.columns]
        self._first: GridRows | None = None
        self._same = np.ones(study.dimension, dtype=np.bool_)

    def __call__(self, rows: GridRows) -> None:
        if len(rows):
            self._first = rows[0] if self._first is None else self._first
            self._same &= (rows == self._first).all(axis=0)
            self.records += len(rows)

    @property
    def columns(self) -> list[str]:
        """Their names; none without a record."""
        return [name for name, same in zip(self._names, self._same, strict=True) if same and self.records]

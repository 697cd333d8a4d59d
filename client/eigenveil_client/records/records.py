"""A site's records, from a file or a view onto a study's grid.

With a person column, the rows of one person are one record, by the site's rule for each column; without a
rule, the first row in the file stands for the person (also when it has a missing value and the study drops
it). What a record is depends on that person's rows alone, so a person more or less changes one record [P30].

How many persons a file holds, and how good a column is, is counted before a study's rules drop any of them:
nothing that an analyst chooses bears on it but a column's own bounds.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.site.quantize import to_grid
from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.quality import (
    NO_RANGES,
    ColumnQuality,
    Ranges,
    check_units,
    plausible_bounds,
    quality,
)
from eigenveil_client.records.recoding.blocks import blocks
from eigenveil_client.records.recoding.measure import measure
from eigenveil_client.records.recoding.rule import ColumnRule, digest
from eigenveil_client.records.sources.opening import open_source
from eigenveil_client.records.tables.cells import Reading, Unreadable
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.records.tables.table import Source, name_and_unit
from eigenveil_common.log import event
from eigenveil_common.threads import side_by_side

LINES = "(whole lines)"  # no column's name, where columns are listed

Rules = tuple[ColumnRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """What a study sees of a file, and what no study's choices bear on.

    Shape: rows (n, d), the usable records on the study's grid, d in the study's order. `persons` are counted
    in the whole file, before a missing value drops any; n <= persons. `file` is the digest of all of the
    source, and of the rules if there are any.
    `quality` is what each column of the study is over all persons, in the study's order.
    """

    rows: GridRows
    persons: int
    file: bytes
    quality: tuple[ColumnQuality, ...]


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
    """The records of a site, as the `rules` of the site say what their cells mean, counted against what is
    `plausible`.

    A cell that is empty, NA, N/A, NaN or null (in any case) is missing.

    A cell that is no finite number or no UTF-8 is an error, and a line with too many or too few cells; but
    where `unreadable` is given, it is told of them, such cells are missing, and such a line is left out, like
    a row that names no person. Either way what becomes of a record depends on that record alone.

    Raises:
        RequestError: code `site-policy`, a column in another unit than the site's, or named past its rule.
        BadRecords: naming the column and the line, or the file.
    """
    check_units(study.columns, plausible)
    _check_names(study, rules, plausible)
    reading = Reading(table=open_source(said), unreadable=unreadable)
    file = _digest(reading.table, rules)
    measures = [measure(reading.table.headers, rules, column.name, column.unit) for column in study.columns]
    parts: list[GridRows] = []
    good = [ColumnQuality(name=column.name, persons=0) for column in study.columns]
    persons = 0
    for block in blocks(reading, measures, study.person_column):
        for i, (column, (values, unread)) in enumerate(zip(study.columns, block, strict=True)):
            bounds, within = (column.lower, column.upper), plausible_bounds(column, plausible)
            good[i] += quality(column.name, bounds, values, unread, within)
        parts.append(to_grid(np.column_stack([values for values, _ in block]), study, side_by_side))
        persons += len(block[0][0])
    rows = np.concatenate(parts) if parts else np.empty((0, study.dimension), dtype=np.int16)
    rows.setflags(write=False)
    return Records(rows=rows, persons=persons, file=file, quality=tuple(good))


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


def constant_columns(rows: GridRows, study: Study) -> list[str]:
    """Columns whose records all sit on one grid point: for the operator's eyes, never sent."""
    if len(rows) == 0:
        return []
    same = (rows == rows[0]).all(axis=0)
    return [column.name for column, constant in zip(study.columns, same, strict=True) if constant]


class Reader:
    """Reads a site's records for its daemon: a cell that is no number is a missing value of its record, and a
    line with too many or too few cells is no record.

    One such cell must not show itself to the coordinator as a refusal; the operator is warned of its
    column, once, and finds the line with `eigenveil-site check`.
    """

    def __init__(self, said: RecordsConfig, rules: Rules, plausible: Ranges) -> None:
        self._said = said
        self._rules = rules
        self._plausible = plausible
        self._warned: set[str] = set()

    def __call__(self, study: Study) -> Records:
        """The records of a study. Raises as `read`."""
        found: set[str] = set()
        tell: Callable[[Unreadable], None] = lambda cells: found.add(cells.column or LINES)  # noqa: E731
        taken = read(self._said, study, rules=self._rules, plausible=self._plausible, unreadable=tell)
        if found - self._warned:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(found - self._warned)))
            self._warned |= found
        return taken

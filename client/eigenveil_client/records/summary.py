"""Summary of a site's records, and checks of a study by the site's rules, without the libraries that read
files: only a reader process loads these."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import ColumnQuality, PlausibleRanges, check_units
from eigenveil_client.records.recoding.rule import Rules, digest
from eigenveil_client.records.scratch_files import whole
from eigenveil_client.records.tables.names import name_and_unit
from eigenveil_client.records.tables.source import RecordsConfig

LINES = "(whole lines)"  # in place of a column's name, where columns are listed

RowSink = Callable[[GridRows], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSummary:
    """Numbers and digest of a source, which no choice of a study changes. `persons`: counted in the whole
    file, before a missing value drops any. `file`: the digest of the whole source, and of the rules if there
    are any. `quality`: the counts of each column of the study over all persons, in the study's order.
    `lines`, `lost` and `version`: as `LineCounts` has them."""

    persons: int
    file: bytes
    quality: tuple[ColumnQuality, ...]
    lines: int = 0
    lost: int = 0
    version: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records(RecordsSummary):
    """A summary of the source and the rows that a study uses.

    Shape: rows (n, d), the usable records as stored integers of the study's grid, d in the study's order;
    n <= persons."""

    rows: GridRows


def gathered(study: Study, streamed: Callable[[RowSink], RecordsSummary]) -> Records:
    """Return all streamed rows, in memory."""
    parts: list[GridRows] = []
    found = streamed(parts.append)
    rows = whole(parts, study.dimension, stored_dtype(study))
    return Records(rows=rows, **{one.name: getattr(found, one.name) for one in fields(RecordsSummary)})


def records_digest(config: RecordsConfig, source: bytes, rules: Rules) -> bytes:
    """Return the digest of a source with the digest `source`, and of the rules and keys that are stated."""
    for more in (digest(rules) if rules else b"", config.reading_digest):
        if more:  # without any, as earlier versions have it
            source = hashlib.sha256(source + more).digest()
    return source


def check_study(study: Study, rules: Rules, plausible: PlausibleRanges, person: str) -> None:
    """Raise an error if a study defines columns otherwise than the site. No record is compared.

    Another unit does so, and a name that bypasses a rule or a plausible range: the header that a rule reads,
    or a ruled name with a unit in brackets behind it. So does `person`, the records' own name of the person
    column.

    Raises RequestError: code `site-policy`."""
    check_units(study.columns, plausible)
    columns = {name for rule in rules for name in rule.columns}
    raw = ({rule.source for rule in rules if rule.source} | ({person} if person else set())) - columns
    ruled = columns | set(plausible) | ({person} if person else set())
    names = [(one.name, *name_and_unit(one.name)) for one in study.columns]
    past = [name for name, base, unit in names if name in raw or (unit is not None and base in ruled)]
    if past:
        todo = "Name columns as the site does, without the unit in brackets"
        raise RequestError(Code.POLICY, f"the site has rules for {', '.join(past)}. {todo}")


class ConstantColumns:
    """Sink that finds the columns in which all records have one value. For the operator; never sent."""

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
        """The names of these columns; none without a record."""
        return [name for name, same in zip(self._names, self._same, strict=True) if same and self.records]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantList:
    """The columns that a study can use, one a variant, and the number of variants left out. Those left out
    read alike on both strands (A/T, C/G), or have one allele alone."""

    columns: tuple[str, ...]
    left_out: int

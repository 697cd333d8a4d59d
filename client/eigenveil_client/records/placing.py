"""Blocks of persons on a study's grid, and meanwhile the counts of how good its columns are.

Whatever the columns hold goes by way of floats. Where each of them holds integers of one byte, as genotypes
do, and no rule of the site recodes one, there are 256 values a column: each is placed once, and cells are
looked up. That gives the same integers, a hundred thousand columns wide, without a float for every cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.numerics.encoding import IntArray
from eigenveil.site.quantize import to_grid
from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Missing, Study
from eigenveil_client.records.genotypes.table import GenotypeTable
from eigenveil_client.records.overflow.scratch import Scratch
from eigenveil_client.records.quality import ColumnQuality, Ranges, plausible_bounds, quality
from eigenveil_client.records.recoding.blocks import blocks, named_persons
from eigenveil_client.records.recoding.measure import Measure
from eigenveil_client.records.recoding.persons import Persons
from eigenveil_client.records.tables.byte_blocks import KINDS, MISSING, VALUES, ArrowBytes, ByteBlock
from eigenveil_client.records.tables.cells import Reading
from eigenveil_client.records.tables.table import find_column
from eigenveil_common.threads import side_by_side

WIDE = 256  # columns from which on all persons' names are held: they are small beside the persons' rows
EVERYONE = 2**62
TOGETHER = 64  # columns that are gone over while they are in the cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """Some persons on the grid. Shape: rows (m, d), m <= persons: the rest lack a value and are dropped."""

    rows: GridRows
    persons: int


class Placing(Protocol):
    """The columns of a study on its grid."""

    def blocks(self) -> Iterator[Placed]:
        """All persons, each once, in an order that no study chooses. Raises as `Source.batches`."""

    @property
    def quality(self) -> tuple[ColumnQuality, ...]:
        """What each column is over the persons of the blocks so far."""


def placing(
    reading: Reading, measures: Sequence[Measure], study: Study, plausible: Ranges, scratch: Scratch
) -> Placing:
    """What places these columns; what does not fit into memory meanwhile is set aside in `scratch`."""
    named = study.person_column is None or study.dimension >= WIDE
    plain = all(measure.rule.plain for measure in measures)
    if named and plain and _one_byte(reading.table.schema(), measures):
        return OneByte(reading, measures, study, plausible)
    return Floats(reading, measures, study, plausible, scratch)


def _one_byte(schema: pa.Schema, measures: Sequence[Measure]) -> bool:
    return all(schema.field(measure.header).type == pa.int8() for measure in measures)


class Floats:
    """Any columns at all: a float for every cell of a block."""

    def __init__(
        self,
        reading: Reading,
        measures: Sequence[Measure],
        study: Study,
        plausible: Ranges,
        scratch: Scratch,
    ) -> None:
        self._reading, self._measures, self._scratch = reading, measures, scratch
        self._study, self._plausible = study, plausible
        self.quality = tuple(ColumnQuality(name=column.name, persons=0) for column in study.columns)

    def blocks(self) -> Iterator[Placed]:
        for block in blocks(self._reading, self._measures, self._study.person_column, self._scratch):
            self.quality = tuple(
                good
                + quality(
                    column.name,
                    (column.lower, column.upper),
                    *taken,
                    plausible_bounds(column, self._plausible),
                )
                for good, column, taken in zip(self.quality, self._study.columns, block, strict=True)
            )
            rows = to_grid(np.column_stack([values for values, _ in block]), self._study, side_by_side)
            yield Placed(rows=rows, persons=len(block[0][0]))


class OneByte:
    """Columns of one-byte integers without a rule. No cell of theirs is unreadable.

    Shape: table (d, KINDS), the stored integer of each kind of cell (of a missing one: its fill, if there is
    one); times (d, KINDS), how many persons have it.
    """

    def __init__(
        self, reading: Reading, measures: Sequence[Measure], study: Study, plausible: Ranges
    ) -> None:
        self._reading, self._headers = reading, tuple(measure.header for measure in measures)
        self._study, self._plausible = study, plausible
        d = study.dimension
        every = np.broadcast_to(VALUES.astype(np.float64)[:, None], (len(VALUES), d))
        self._table = np.zeros((d, KINDS), dtype=stored_dtype(study))
        self._table[:, :MISSING] = to_grid(every, study, side_by_side).T
        if study.missing is Missing.FILL:
            self._table[:, MISSING] = to_grid(np.full((1, d), np.nan), study)[0]
        self._times: IntArray = np.zeros((d, KINDS), dtype=np.int64)

    def blocks(self) -> Iterator[Placed]:
        person, everyone, start = self._study.person_column, Persons(EVERYONE), 0
        header = None if person is None else find_column(self._reading.table.headers, person)
        for block in self._byte_blocks(header):
            if header is None:
                yield self._placed(block, None, block.rows)
            else:
                names = named_persons(self._reading, header, block.texts(header), start)
                first = everyone.whose(names).first
                yield self._placed(block, first, len(first))
            start += block.rows

    def _byte_blocks(self, person: str | None) -> Iterator[ByteBlock]:
        table = self._reading.table
        if isinstance(table, GenotypeTable):  # its cells lie side by side: no column is touched by itself
            yield from table.blocks(self._headers)
            return
        headers = list(dict.fromkeys((*self._headers, *([person] if person else []))))
        for batch in table.batches(headers, self._reading.told_of_lines):
            yield ArrowBytes(batch, self._headers)

    def _placed(self, block: ByteBlock, first: IntArray | None, persons: int) -> Placed:
        """The persons who come with the rows `first` (all, if None)."""
        d, drops = self._study.dimension, self._study.missing is Missing.DROP
        rows = np.empty((persons, d), dtype=self._table.dtype)

        def place(start: int) -> NDArray[np.bool_]:
            """Some columns; which persons have a value in each of them."""
            here = slice(start, min(start + TOGETHER, d))
            kinds = block.kinds(here.start, here.stop)
            kinds = kinds if first is None else kinds[:, first]
            complete: NDArray[np.bool_] = (
                (kinds != MISSING).all(axis=0) if drops else np.ones(persons, dtype=np.bool_)
            )
            kinds += KINDS * np.arange(len(kinds))[:, None]
            self._times[here] += np.bincount(kinds.ravel(), minlength=KINDS * len(kinds)).reshape(-1, KINDS)
            rows[:, here] = self._table[here].ravel().take(kinds).T
            return complete

        complete = np.logical_and.reduce(list(side_by_side(place, range(0, d, TOGETHER))))
        rows = rows if complete.all() else rows[complete]
        rows.setflags(write=False)
        return Placed(rows=rows, persons=persons)

    @property
    def quality(self) -> tuple[ColumnQuality, ...]:
        columns = self._study.columns
        there = np.flatnonzero(self._times[:, :MISSING].any(axis=0))
        values, times = VALUES[there].astype(np.float64), self._times[:, there]
        lower, upper = np.array([[one.lower, one.upper] for one in columns]).T[:, :, None]
        least, most = np.array([plausible_bounds(one, self._plausible) for one in columns]).T[:, :, None]
        counts = {
            "persons": self._times.sum(axis=1),
            "missing": self._times[:, MISSING],
            "below": times.sum(axis=1, where=values < lower),
            "above": times.sum(axis=1, where=values > upper),
            "implausible": times.sum(axis=1, where=(values < least) | (values > most)),
            "at_bound": times.sum(axis=1, where=(values == lower) | (values == upper)),
        }
        by_column = zip(*(count.tolist() for count in counts.values()), strict=True)
        return tuple(
            ColumnQuality(name=column.name, **dict(zip(counts, numbers, strict=True)))
            for column, numbers in zip(columns, by_column, strict=True)
        )

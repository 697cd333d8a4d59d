"""Encoders that place blocks of persons on a study's grid and count the quality of its columns.

Any columns can be encoded by way of floats. Columns of one-byte integers without a rule, such as genotypes,
have 256 possible values each. These values are encoded once, and cells are looked up in a table. The integers
are the same, and a hundred thousand columns need no float for every cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.numerics.encoding import IntArray
from eigenveil.site.record_view import to_grid
from eigenveil.study.grid import GridRows, stored_dtype
from eigenveil.study.study import Column, Missing, Study
from eigenveil_client.records.column_quality import ColumnQuality, PlausibleRanges, plausible_bounds, quality
from eigenveil_client.records.genotype_table import GenotypeBlock, GenotypeTable
from eigenveil_client.records.recoding.gather import blocks, named_persons
from eigenveil_client.records.recoding.parsing import ColumnParser
from eigenveil_client.records.recoding.persons import MarkedValues, Persons
from eigenveil_client.records.scratch_files import Scratch
from eigenveil_client.records.tables.batches import KINDS, MISSING, VALUES, ArrowBytes
from eigenveil_client.records.tables.cells import Reading
from eigenveil_common.concurrency import map_in_threads

WIDE = 256  # columns from which on all names of persons are cached: they are small beside the rows
NO_LIMIT = 2**62
COLUMNS_AT_ONCE = 64  # columns processed while they are in the cache
ENTRIES_AT_ONCE = 2**17  # floats of a part of a block, likewise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridBlock:
    """Some persons on the grid. Shape: rows (m, d), m <= persons: persons who lack a value are dropped."""

    rows: GridRows
    persons: int


def grid_encoder(
    reading: Reading,
    parsers: Sequence[ColumnParser],
    study: Study,
    plausible: PlausibleRanges,
    scratch: Scratch,
) -> FloatGridEncoder | ByteGridEncoder:
    """Return an encoder for these columns. Rows that do not fit into memory are written to `scratch`."""
    few = study.person_column is None or study.dimension >= WIDE
    if few and all(parser.rule.plain for parser in parsers):
        schema = reading.table.schema()
        if all(schema.field(parser.header).type == pa.int8() for parser in parsers):
            return ByteGridEncoder(reading, parsers, study, plausible)
    return FloatGridEncoder(reading, parsers, study, plausible, scratch)


class FloatGridEncoder:
    """Encoder of any columns, with a float for every cell of a block. `quality`: the counts of each column
    over the persons of the blocks so far."""

    def __init__(
        self,
        reading: Reading,
        parsers: Sequence[ColumnParser],
        study: Study,
        plausible: PlausibleRanges,
        scratch: Scratch,
    ) -> None:
        self._reading, self._parsers, self._scratch = reading, parsers, scratch
        self._study, self._plausible = study, plausible
        self.quality = tuple(ColumnQuality(name=column.name, persons=0) for column in study.columns)

    def blocks(self) -> Iterator[GridBlock]:
        """Yield all persons, each once, in an order that no study chooses. Raises as `Source.batches`."""
        for block in blocks(self._reading, self._parsers, self._study.person_column, self._scratch):
            counts = map_in_threads(self._quality, zip(self._study.columns, block, strict=True))
            self.quality = tuple(good + more for good, more in zip(self.quality, counts, strict=True))
            yield GridBlock(rows=self._place(block), persons=len(block[0][0]))

    def _quality(self, column_and_values: tuple[Column, MarkedValues]) -> ColumnQuality:
        column, values = column_and_values
        plausible = plausible_bounds(column, self._plausible)
        return quality(column.name, (column.lower, column.upper), values, plausible)

    def _place(self, block: list[MarkedValues]) -> GridRows:
        """Return the rows of a block. Only parts of it are floats side by side.

        Shape: d columns of (m,) -> (n, d), n <= m."""
        size = max(1, ENTRIES_AT_ONCE // len(block))

        def place_part(start: int) -> GridRows:
            part = np.column_stack([values[start : start + size] for values, _ in block])
            return to_grid(part, self._study)

        starts = range(0, max(1, len(block[0][0])), size)
        rows: GridRows = np.concatenate(list(map_in_threads(place_part, starts)))
        rows.setflags(write=False)
        return rows


ByteBlock = ArrowBytes | GenotypeBlock


class ByteGridEncoder:
    """Encoder of columns of one-byte integers without a rule. None of their cells is unreadable.

    Shape: table (d, KINDS), the stored integer of each kind of cell (of a missing one its fill, if any);
    times (d, KINDS), the number of persons with that kind."""

    def __init__(
        self, reading: Reading, parsers: Sequence[ColumnParser], study: Study, plausible: PlausibleRanges
    ) -> None:
        self._reading, self._headers = reading, tuple(parser.header for parser in parsers)
        self._study, self._plausible = study, plausible
        d = study.dimension
        every = np.broadcast_to(VALUES.astype(np.float64)[:, None], (len(VALUES), d))
        self._table = np.zeros((d, KINDS), dtype=stored_dtype(study))
        self._table[:, :MISSING] = to_grid(every, study, map_in_threads).T
        if study.missing is Missing.FILL:
            self._table[:, MISSING] = to_grid(np.full((1, d), np.nan), study)[0]
        self._times: IntArray = np.zeros((d, KINDS), dtype=np.int64)

    def blocks(self) -> Iterator[GridBlock]:
        person, known_persons, start = self._study.person_column, Persons(NO_LIMIT), 0
        header = self._reading.person_header(person)
        for block in self._byte_blocks(header):
            first = None
            if header is not None:
                names = named_persons(self._reading, header, block.texts(header), start)
                first = known_persons.row_persons(names).first
            yield self._grid_block(block, first)
            start += block.rows
            self._reading.tally.rows += block.rows

    def _byte_blocks(self, person: str | None) -> Iterator[ByteBlock]:
        table = self._reading.table
        if isinstance(table, GenotypeTable):  # its cells are adjacent: read all columns at once
            yield from table.blocks(self._headers)
            return
        headers = list(dict.fromkeys((*self._headers, *([person] if person else []))))
        for batch in table.batches(headers, self._reading.on_lost):
            yield ArrowBytes(batch, self._headers)

    def _grid_block(self, block: ByteBlock, first: IntArray | None) -> GridBlock:
        """Encode the persons who come with the rows `first` (all, if None)."""
        persons = block.rows if first is None else len(first)
        d, drops = self._study.dimension, self._study.missing is Missing.DROP
        rows = np.empty((persons, d), dtype=self._table.dtype)

        def encode_columns(start: int) -> NDArray[np.bool_]:
            """Encode some columns; return the persons who have a value in each of them."""
            here = slice(start, min(start + COLUMNS_AT_ONCE, d))
            kinds = block.kinds(here.start, here.stop)
            kinds = kinds if first is None else kinds[:, first]
            complete = (kinds != MISSING).all(axis=0) if drops else np.ones(persons, dtype=np.bool_)
            kinds += KINDS * np.arange(len(kinds))[:, None]
            self._times[here] += np.bincount(kinds.ravel(), minlength=KINDS * len(kinds)).reshape(-1, KINDS)
            rows[:, here] = self._table[here].ravel().take(kinds).T
            return complete

        complete = np.logical_and.reduce(list(map_in_threads(encode_columns, range(0, d, COLUMNS_AT_ONCE))))
        rows = rows if complete.all() else rows[complete]
        rows.setflags(write=False)
        return GridBlock(rows=rows, persons=persons)

    @property
    def quality(self) -> tuple[ColumnQuality, ...]:
        columns = self._study.columns
        present = np.flatnonzero(self._times[:, :MISSING].any(axis=0))
        values, times = VALUES[present].astype(np.float64), self._times[:, present]
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

"""A matrix of genotypes as a source of records: persons as rows, one column for each allele."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eigenveil_client.records.genotypes.alleles import MISSING, Counts, Matrix
from eigenveil_client.records.tables import byte_blocks
from eigenveil_client.records.tables.batches import batch_rows, whole_chunks
from eigenveil_client.records.tables.byte_blocks import Kinds
from eigenveil_client.records.tables.dialect import COMMAS, Dialect
from eigenveil_client.records.tables.table import BadRecords, LeaveOut

KINDS = np.arange(256)  # what a byte of a block is
KINDS[MISSING] = byte_blocks.MISSING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenotypeBlock:
    """Alleles counted of some persons, and what these are called. Shape: counts (columns, persons)."""

    counts: Counts
    names: Mapping[str, Sequence[str]]

    @property
    def rows(self) -> int:
        return int(self.counts.shape[1])

    def kinds(self, start: int, stop: int) -> Kinds:
        found: Kinds = KINDS.take(self.counts[start:stop].view(np.uint8))
        return found

    def texts(self, header: str) -> pa.Array:
        return pa.array(self.names[header], pa.string())


class GenotypeTable:
    """The matrix found under `name`, block by block of persons."""

    def __init__(self, name: str, matrix: Matrix) -> None:
        self._name = name
        self._matrix = matrix
        self.headers: tuple[str, ...] = (*matrix.names, *matrix.headers)

    @property
    def dialect(self) -> Dialect:
        return COMMAS

    @property
    def persons(self) -> int:
        return self._matrix.persons

    def schema(self) -> pa.Schema:
        texts = [(name, pa.string()) for name in self._matrix.names]
        return pa.schema([*texts, *((header, pa.int8()) for header in self._matrix.headers)])

    def digest(self) -> bytes:
        return self._matrix.digest()

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`; every person has every cell."""
        counted = [header for header in headers if header not in self._matrix.names]
        for block in self.blocks(counted):
            arrays = dict(zip(counted, _arrays(block.counts), strict=True))
            arrays |= {header: block.texts(header) for header in headers if header not in arrays}
            yield pa.record_batch([arrays[header] for header in headers], names=headers)

    def blocks(self, headers: Sequence[str]) -> Iterator[GenotypeBlock]:
        """The columns that count alleles, in this order. A block is read from the file at once: what it holds
        in memory is bounded at any number of persons and columns."""
        matrix, names = self._matrix, self._matrix.names
        places = {header: place for place, header in enumerate(matrix.headers)}
        columns = matrix.alleles.only(np.array([places[header] for header in headers], dtype=np.int64))
        size = whole_chunks(batch_rows(len(headers), one_byte=True), matrix.at_once)
        for start in range(0, matrix.persons, size):
            here = slice(start, min(start + size, matrix.persons))
            with _about(self._name):
                counts = matrix.counts(here, columns)
            yield GenotypeBlock(counts=counts, names={name: every[here] for name, every in names.items()})

    def place(self, row: int, *, whole: bool = True) -> str:
        return f"person {row + 1}"


def _arrays(counts: Counts) -> Iterator[pa.Array]:
    """Columns of Arrow's over the same bytes. Shape: counts (columns, persons)."""
    for column in counts:
        there = column != MISSING
        known = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
        yield pa.Array.from_buffers(pa.int8(), len(column), [known, pa.py_buffer(column)])


@contextmanager
def _about(name: str) -> Iterator[None]:
    """Whatever a library finds wrong with the genotypes themselves, in our own words."""
    try:
        yield
    except BadRecords:
        raise
    except Exception:  # noqa: BLE001 - libraries raise all kinds, and their words may quote what is in a file
        raise BadRecords(f"{name}: the genotypes cannot be read; check that the file is whole") from None

"""Genotypes as a source of records: persons as rows, and a column `rs123_A` for each allele of each
variant. The column counts the allele A of the variant rs123 in a person. The files of two sites may count
different alleles of a variant. So every allele has a column, and a study names one: no sign depends on a
site's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.numerics.encoding import IntArray
from eigenveil_client.records.tables import batches
from eigenveil_client.records.tables.batches import Kinds, batch_rows, whole_chunks
from eigenveil_client.records.tables.lost import LostLines
from eigenveil_client.records.tables.source import COMMAS, BadRecords, Dialect, OnLost

Counts = NDArray[np.int8]
MISSING = -1  # in place of a count


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alleles:
    """Columns by position: allele number `allele` of the file's variant number `variant`.

    Shape: variant and allele (columns,)."""

    variant: IntArray
    allele: IntArray

    def __len__(self) -> int:
        return len(self.variant)

    def only(self, indices: IntArray) -> Alleles:
        """Return the columns at these positions, in their order."""
        return Alleles(variant=self.variant[indices], allele=self.allele[indices])


class GenotypeMatrix(Protocol):
    """Genotypes of some persons in a file. `names`: of the persons, by the kind of name. `headers`: the names
    of the columns, `alleles`: those that they count, in the same order. `at_once`: the number of persons in a
    chunk of the file, as reading other numbers is slower."""

    @property
    def persons(self) -> int: ...
    @property
    def names(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def headers(self) -> tuple[str, ...]: ...
    @property
    def alleles(self) -> Alleles: ...
    @property
    def at_once(self) -> int: ...

    def counts(self, here: slice, columns: Alleles) -> Counts:
        """Return the counts of alleles in persons, or MISSING. Shape: (columns, persons). Raises Exception:
        any error of the library; it is not shown, as it may quote a genotype."""

    def digest(self) -> bytes:
        """Return the digest of the file and of the lists beside it."""


def header(variant: str, allele: str) -> str:
    """Return the name of a column, as PLINK writes it: the variant, and the allele that is counted."""
    return f"{variant}_{allele}"


KINDS = np.arange(256)  # the kind of each byte of a block
KINDS[MISSING] = batches.MISSING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenotypeBlock:
    """Allele counts of some persons, and their names. Shape: counts (columns, persons)."""

    counts: Counts
    names: Mapping[str, Sequence[str]]

    @property
    def rows(self) -> int:
        return int(self.counts.shape[1])

    def kinds(self, start: int, stop: int) -> Kinds:
        return KINDS.take(self.counts[start:stop].view(np.uint8))

    def texts(self, header: str) -> pa.Array:
        return pa.array(self.names[header], pa.string())


class GenotypeTable:
    """Source of the matrix called `name`, read in blocks of persons."""

    def __init__(self, name: str, matrix: GenotypeMatrix) -> None:
        self._name, self._matrix = name, matrix
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

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        """Yield batches: see `Source.batches`. Every person has every cell."""
        counted = [header for header in headers if header not in self._matrix.names]
        for block in self.blocks(counted):
            arrays = dict(zip(counted, _arrays(block.counts), strict=True))
            arrays |= {header: block.texts(header) for header in headers if header not in arrays}
            yield pa.record_batch([arrays[header] for header in headers], names=headers)

    def blocks(self, headers: Sequence[str]) -> Iterator[GenotypeBlock]:
        """Yield blocks of these columns of allele counts, in this order. The memory of a block is bounded at
        any number of persons and columns."""
        matrix, names = self._matrix, self._matrix.names
        indices = {header: index for index, header in enumerate(matrix.headers)}
        columns = matrix.alleles.only(np.array([indices[header] for header in headers], dtype=np.int64))
        size = whole_chunks(batch_rows(len(headers), one_byte=True), matrix.at_once)
        for start in range(0, matrix.persons, size):
            here = slice(start, min(start + size, matrix.persons))
            with _about(self._name):
                counts = matrix.counts(here, columns)
            yield GenotypeBlock(counts=counts, names={name: every[here] for name, every in names.items()})

    def lost_lines(self) -> tuple[LostLines, ...]:
        return ()

    def locations(self, rows: Sequence[int]) -> list[str]:
        return [f"person {row + 1}" for row in rows]


def _arrays(counts: Counts) -> Iterator[pa.Array]:
    """Yield Arrow arrays that share these bytes. Shape: counts (columns, persons)."""
    for column in counts:
        there = column != MISSING
        known = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
        yield pa.Array.from_buffers(pa.int8(), len(column), [known, pa.py_buffer(column)])


@contextmanager
def _about(name: str) -> Iterator[None]:
    """Replace a library's error about genotypes by BadRecords, as its message may quote the file."""
    try:
        yield
    except BadRecords:
        raise
    except Exception:  # noqa: BLE001 - libraries raise any error, and quote the file
        raise BadRecords(f"{name}: the genotypes cannot be read. Check that the file is complete") from None

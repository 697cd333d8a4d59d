"""Tasks of a cluster's worker on its share of a site's records, one file: load, store, answer.

No task raises an error, because a worker would log it with any value that it quotes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

from eigenveil.errors import Code, EigenveilError, error
from eigenveil.numerics.encoding import IntArray
from eigenveil.numerics.linalg import single_blas_thread
from eigenveil.queries import Frame, Query
from eigenveil.site.site import Site
from eigenveil.study.grid import unit
from eigenveil.study.study import Study
from eigenveil_client.records.column_quality import ColumnQuality, PlausibleRanges
from eigenveil_client.records.isolated.reader import read
from eigenveil_client.records.records import LINES, Records, Rules
from eigenveil_client.records.tables.cells import Unreadable
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from eigenveil_common.log import frame_locations

Given = ParamSpec("Given")
Done = TypeVar("Done")
FramedQuery = tuple[Query, Frame | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerError:
    """An error as a value, on its way to the site; bad records have `about`, and sometimes `kind`."""

    code: Code
    message: str
    about: str = ""
    kind: str = ""

    def error(self) -> EigenveilError:
        """Return the error to raise at the site."""
        if self.about:
            return BadRecords(self.message, about=self.about, kind=self.kind)
        return error(self.code, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSource:
    """The file of a study to read, with the site's `rules` and its `plausible` ranges."""

    records_config: RecordsConfig
    study: Study
    rules: Rules
    plausible: PlausibleRanges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """A loaded share on a worker, and its columns with unreadable cells. `digest` covers the file and the
    rows."""

    records: Records
    unit: int
    digest: bytes
    unreadable: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """Description of a partition for the site, without its rows."""

    records: int
    persons: int
    digest: bytes
    quality: tuple[ColumnQuality, ...]
    unreadable: frozenset[str]


def _errors_as_values(work: Callable[Given, Done]) -> Callable[Given, Done | WorkerError]:
    @wraps(work)
    def done(*arguments: Given.args, **keywords: Given.kwargs) -> Done | WorkerError:
        for one in arguments:
            for found in one if isinstance(one, list) else (one,):
                if isinstance(found, WorkerError):
                    return found  # of the task before
        try:
            return work(*arguments, **keywords)
        except EigenveilError as problem:
            about, kind = getattr(problem, "about", ""), getattr(problem, "kind", "")
            return WorkerError(code=problem.code, message=str(problem), about=about, kind=kind)
        except Exception as unexpected:  # noqa: BLE001 - the site logs it, without its text
            at = frame_locations(unexpected.__traceback__)
            return WorkerError(code=Code.BUG, message=f"{type(unexpected).__qualname__} at {at}")

    return done


@_errors_as_values
def load(share: PartitionSource) -> Partition:
    """Return the records of a share, by the same code and rules as on one machine [P30]."""
    found: set[str] = set()
    tell: Callable[[Unreadable], None] = lambda cells: found.add(cells.column or LINES)  # noqa: E731
    records = read(
        share.records_config, share.study, rules=share.rules, plausible=share.plausible, unreadable=tell
    )
    return Partition(
        records=records, unit=unit(share.study), digest=_digest(records), unreadable=frozenset(found)
    )


@_errors_as_values
def summary(partition: Partition) -> PartitionSummary:
    records = partition.records
    return PartitionSummary(
        records=len(records.rows),
        persons=records.persons,
        digest=partition.digest,
        quality=records.quality,
        unreadable=partition.unreadable,
    )


@_errors_as_values
def answer(partition: Partition, digest: bytes, framed_query: FramedQuery) -> IntArray:
    """Return the exact sum over a partition, if its digest is equal: another worker may have reloaded it.

    Privacy: none by itself, as `Site.answer`; it is added to the others' and goes nowhere else.
    """
    if partition.digest != digest:
        raise BadRecords(
            "the records have changed since this study began; restore them, or start a new study",
            about="changed",
        )
    query, frame = framed_query
    with single_blas_thread():  # the worker's tasks are the threads
        return Site(partition.records.rows, unit=partition.unit).answer(query, frame=frame)


@_errors_as_values
def add(answers: list[IntArray]) -> IntArray:
    """Return the exact sum, which is independent of the order [P1]."""
    return sum(answers[1:], answers[0])


def forward(framed_query: FramedQuery) -> FramedQuery:
    """Return the query: one task sends it to all workers, and is repeated if its worker is lost."""
    return framed_query


def _digest(records: Records) -> bytes:
    found = hashlib.sha256(records.file)
    found.update(np.ascontiguousarray(records.rows).data)
    return found.digest()


def shares(share: PartitionSource, files: Sequence[Path]) -> list[PartitionSource]:
    """Return one share for each file."""
    return [replace(share, records_config=replace(share.records_config, source=one)) for one in files]

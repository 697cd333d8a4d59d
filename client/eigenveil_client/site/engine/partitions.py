"""What a worker of a cluster does with its share of a site's records, a file: load it as the site itself
would, keep it, answer from it.

Nothing here raises: what was raised would stand in a worker's log, with whatever it quotes.
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
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import IntArray
from eigenveil.queries import Frame, Query
from eigenveil.site.site import Site
from eigenveil.study.grid import unit
from eigenveil.study.study import Study
from eigenveil_client.records.apart.reader import read
from eigenveil_client.records.quality import ColumnQuality, Ranges
from eigenveil_client.records.records import LINES, Records, Rules
from eigenveil_client.records.tables.cells import Unreadable
from eigenveil_client.records.tables.config import RecordsConfig
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.log import places

Given = ParamSpec("Given")
Done = TypeVar("Done")
Asked = tuple[Query, Frame | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error of ours on its way to the site; `about` is there for bad records, and perhaps `kind`."""

    code: Code
    message: str
    about: str = ""
    kind: str = ""

    def error(self) -> EigenveilError:
        """To be raised at the site."""
        if self.about:
            return BadRecords(self.message, about=self.about, kind=self.kind)
        return error(self.code, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The file `said.source` for a study, read by the site's `rules` and held against what is `plausible`."""

    said: RecordsConfig
    study: Study
    rules: Rules
    plausible: Ranges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """A share as a worker keeps it, and the columns in which a cell cannot be read. `digest` is of the file
    and of the rows."""

    records: Records
    unit: int
    digest: bytes
    unreadable: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the site is told of a partition: all but its rows."""

    records: int
    persons: int
    digest: bytes
    quality: tuple[ColumnQuality, ...]
    unreadable: frozenset[str]


def _as_value(work: Callable[Given, Done]) -> Callable[Given, Done | Problem]:
    @wraps(work)
    def done(*given: Given.args, **named: Given.kwargs) -> Done | Problem:
        for one in given:
            for found in one if isinstance(one, list) else (one,):
                if isinstance(found, Problem):
                    return found  # of the work before
        try:
            return work(*given, **named)
        except EigenveilError as problem:
            about, kind = getattr(problem, "about", ""), getattr(problem, "kind", "")
            return Problem(code=problem.code, message=str(problem), about=about, kind=kind)
        except Exception as surprise:  # noqa: BLE001 - the site logs it, without its text
            at = places(surprise.__traceback__)
            return Problem(code=Code.BUG, message=f"{type(surprise).__qualname__} at {at}")

    return done


@_as_value
def load(share: Share) -> Partition:
    """The records of a share, by the same code and with the same rules as on one machine [P30]."""
    found: set[str] = set()
    tell: Callable[[Unreadable], None] = lambda cells: found.add(cells.column or LINES)  # noqa: E731
    taken = read(share.said, share.study, rules=share.rules, plausible=share.plausible, unreadable=tell)
    return Partition(
        records=taken, unit=unit(share.study), digest=_digest(taken), unreadable=frozenset(found)
    )


@_as_value
def summary(partition: Partition) -> Summary:
    records = partition.records
    return Summary(
        records=len(records.rows),
        persons=records.persons,
        digest=partition.digest,
        quality=records.quality,
        unreadable=partition.unreadable,
    )


@_as_value
def answer(partition: Partition, digest: bytes, asked: Asked) -> IntArray:
    """The exact sum over a partition, if it is still the one with that digest: it may have been loaded again
    since, on another worker.

    Privacy: none by itself, as `Site.answer`; it is added to the others' and goes nowhere else.
    """
    if partition.digest != digest:
        raise BadRecords(
            "the records have changed since this study began; a study runs over one state of them",
            about="changed",
        )
    query, frame = asked
    with one_thread():  # the worker's tasks are the threads
        return Site(partition.records.rows, unit=partition.unit).answer(query, frame=frame)


@_as_value
def add(answers: list[IntArray]) -> IntArray:
    """Their exact sum: integers, so in whatever order [P1]."""
    return sum(answers[1:], answers[0])


def same(asked: Asked) -> Asked:
    """A question, once on its way for all who need it; made again if the worker that held it is gone."""
    return asked


def _digest(records: Records) -> bytes:
    found = hashlib.sha256(records.file)
    found.update(np.ascontiguousarray(records.rows).data)
    return found.digest()


def shares(share: Share, files: Sequence[Path]) -> list[Share]:
    """One share for each file."""
    return [replace(share, said=replace(share.said, source=one)) for one in files]

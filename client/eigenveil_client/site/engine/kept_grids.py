"""Grids of records that a site keeps, so that later studies over the same unchanged files do not read them.

A grid is kept in an unnamed, encrypted file whose key is in the memory of this process alone. So none
outlives its process, and a stolen disk holds noise. It is used for studies that would read exactly these
rows: those with equal columns, bounds and rules, while the source has the same digest, which is computed for
each. It is dropped when it is too old, when newer ones need its space, and when a person withdraws from a
study that used it.

Privacy: rows, counts and digests equal those of a new reading [P1]. The time of loading reveals if the files
changed since an earlier study [TM41]."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from eigenveil.site.record_view import StoredRows
from eigenveil.study.study import Federation, Scaling, Study
from eigenveil_client.records.scratch_files import GridFile, Scratch, ScratchFile
from eigenveil_client.records.summary import RecordsSummary
from eigenveil_client.records.tables.source import BadRecords

Stamp = tuple[tuple[int, ...], ...]
Require = Callable[[], object]  # raises an error once records may not be read or kept any more


def always() -> None:
    """Require nothing."""


def grid_study(study: Study) -> Study:
    """Return a study with all of `study` on which its grid depends, and nothing else: readers get no more."""
    return Study(
        name="grid", epsilon=1.0, delta=0.0, components=1, federation=Federation(sites=("here",)),
        columns=study.columns, missing=study.missing, person_column=study.person_column,
        scaling=Scaling.NONE if study.scaling is Scaling.NONE else Scaling.BOUNDS,
        grid_steps=study.grid_steps, max_records=study.max_records,
    )  # fmt: skip


def stamp(paths: Collection[Path]) -> Stamp:
    """Return what the system states of files, and of the files of folders: another stamp before and after a
    reading means that they were changed meanwhile."""
    every = [one for path in paths for one in (path, *(sorted(path.rglob("*")) if path.is_dir() else ()))]
    try:
        found = [one.stat() for one in every]
    except OSError:
        return ()
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptGrid:
    """Rows in a file, the summary of their source, and the digest of both; and the studies that used them."""

    rows: ScratchFile
    summary: RecordsSummary
    digest: bytes
    began: float = field(default_factory=time.monotonic)
    plans: set[str] = field(default_factory=set)


class KeptGrids:
    """Kept grids of one process, up to `most_bytes` in all, each for `seconds`. `digest` returns the present
    digest of the source, which is `files`, as `RecordsSummary.file`. May be used by several threads."""

    def __init__(
        self,
        scratch: Scratch,
        most_bytes: int,
        seconds: float,
        files: Collection[Path],
        digest: Callable[[], bytes],
    ) -> None:
        self._scratch, self._most, self._seconds = scratch, most_bytes, seconds
        self._files, self._digest = files, digest
        self._grids: dict[Study, KeptGrid] = {}
        self._lock = threading.Lock()

    def stamp(self) -> Stamp:
        """Return the stamp of the source."""
        return stamp(self._files)

    @property
    def plans(self) -> frozenset[str]:
        """The studies that used kept grids."""
        with self._lock:
            return frozenset(plan for one in self._grids.values() for plan in one.plans)

    def find(self, study: Study, plan: str) -> KeptGrid | None:
        """Return the grid of a grid study, with a file of its own, if the source is unchanged; `plan` uses
        it. Raises BadRecords: the source cannot be read."""
        self.drop_old()
        if study not in self._grids:
            return None
        present = self._digest()  # not under the lock, as it reads all files
        with self._lock:
            kept = self._grids.get(study)
            if kept is None:
                return None
            if kept.summary.file != present:
                self._drop(study)
                return None
            kept.plans.add(plan)
            return KeptGrid(rows=kept.rows.duplicate(), summary=kept.summary, digest=kept.digest)

    def add(
        self,
        study: Study,
        plan: str,
        rows: StoredRows,
        summary: RecordsSummary,
        digest: bytes,
        read: Stamp,
        require: Require = always,
    ) -> None:
        """Keep rows that `plan` uses; nothing if the source has not the stamp any more that it had before it
        was read, or if they do not fit into the space or cannot be written. Raises as `require`, which is
        asked under the lock: a withdrawal before it keeps nothing, and a later one finds the rows."""
        size = len(rows) * rows.shape[1] * rows.dtype.itemsize
        if not read or read != self.stamp() or not 0 < size <= self._most:
            return
        with self._lock, suppress(BadRecords):
            require()
            self._drop(study)
            while sum(one.rows.size for one in self._grids.values()) + size > self._most:
                self._drop(next(iter(self._grids)))
            file = rows.file.duplicate() if isinstance(rows, GridFile) else self._written(rows)
            self._grids[study] = KeptGrid(rows=file, summary=summary, digest=digest, plans={plan})

    def _written(self, rows: StoredRows) -> ScratchFile:
        file = self._scratch.file()
        try:
            file.append(np.ascontiguousarray(rows[:]).data.cast("B"))
        except BadRecords:
            file.close()
            raise
        return file

    def forget(self, plans: Collection[str]) -> None:
        """Drop the grids that any of these studies used."""
        with self._lock:
            for study in [key for key, one in self._grids.items() if one.plans.intersection(plans)]:
                self._drop(study)

    def drop_old(self) -> None:
        """Drop the grids that are too old."""
        oldest = time.monotonic() - self._seconds
        with self._lock:
            for study in [key for key, one in self._grids.items() if one.began <= oldest]:
                self._drop(study)

    def _drop(self, study: Study) -> None:
        kept = self._grids.pop(study, None)
        if kept is not None:
            kept.rows.close()

"""How a daemon reads records: nothing of a single record may show itself as a refusal."""

from __future__ import annotations

import logging
from pathlib import Path

from eigenveil.study.study import Study
from eigenveil_client.records import records
from eigenveil_client.records.records import Records
from eigenveil_common.log import event

LINES = "(whole lines)"  # no column's name, where columns are listed


class Reader:
    """Reads a site's records for its daemon: a cell that is no number is a missing value of its record, and a
    line with too many or too few cells is no record.

    One such cell must not show itself to the coordinator as a refusal; the operator is warned of its
    column, once, and finds the line with `eigenveil-site check`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._warned: set[str] = set()

    def __call__(self, study: Study) -> Records:
        """The records of a study. Raises as `records.read`."""
        found: set[str] = set()
        read = records.read(self._path, study, unreadable=lambda cells: found.add(cells.column or LINES))
        if found - self._warned:
            event("cells-unreadable", logging.WARNING, columns=", ".join(sorted(found - self._warned)))
            self._warned |= found
        return read

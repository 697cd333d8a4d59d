"""Requests to a reader process. Its tasks are named here and loaded there, with all that opens files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from eigenveil_client.records.isolated.frames import Item
from eigenveil_client.records.summary import RowSink
from eigenveil_client.records.tables.source import RecordsConfig

MEMORY, UNEXPECTED = "reader-memory", "reader"  # subjects of a reader's errors that do not concern a file

# A task sends items and rows, and returns a final value. All but rows are plain values, as JSON has them.
Task = Callable[[RecordsConfig, Item, RowSink], Any]


class ReaderTask(Enum):
    """Tasks of a reader, by the names of their functions in `tasks`, where their options are."""

    READ_RECORDS = "read_records"
    COUNT_LINES = "count_lines"
    CHECK_SOURCE = "check_source"
    LIST_COLUMNS = "list_columns"
    DIGEST_SOURCE = "digest_source"
    PROFILE_COLUMNS = "profile_columns"
    LIST_TABLES = "list_tables"
    SEE_TABLE = "see_table"
    LIST_VARIANTS = "list_variants"

    def __call__(self, config: RecordsConfig, item: Item, sink: RowSink, **options: Any) -> Any:
        from eigenveil_client.records.isolated import tasks  # in the reader process alone

        return getattr(tasks, self.value)(config, item, sink, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRequest:
    """Request to a reader process. `begins`: the folder for relative paths. `memory`: a limit in bytes.
    `seconds`: of processor time. `folders`: those to write in, the last for temporary files. `environment`:
    settings of libpq for a database."""

    config: RecordsConfig
    task: Task
    begins: Path
    memory: int
    seconds: float
    folders: Sequence[Path]
    environment: Mapping[str, str]

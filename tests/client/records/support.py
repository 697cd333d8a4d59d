"""Records that are read in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil.study.grid import GridRows
from eigenveil.study.study import Study
from eigenveil_client.records.records import Records, gathered, stream
from eigenveil_client.records.tables.source import RecordsConfig


def read(source: Path | RecordsConfig, study: Study, **options: Any) -> Records:
    """Return the records of a source, which may be a file with default settings."""
    config = source if isinstance(source, RecordsConfig) else RecordsConfig(source=source)
    return gathered(study, lambda sink: stream(config, study, sink, **options))


def load(path: Path, study: Study, **options: Any) -> GridRows:
    return read(path, study, **options).rows

"""Log with one line per state change: ids and codes, never values, counts or norms. The allowed fields are a
closed list. An exception is logged by its type and stack locations, never by its text, which may quote a
cell."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
import traceback
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

logger = logging.getLogger("eigenveil")
DIGEST = re.compile("[0-9a-f]{64}")


class Format(Enum):
    """Format of the log (`log_format`): lines of text, or one JSON object per line."""

    TEXT = "text"
    JSON = "json"


# Allowed: ids, codes, public names of studies or configurations, times of certificates, lengths of a ledger
# (`here`, `there`), and messages of eigenveil.errors. Never: numbers of records, values, norms or statistics.
FIELDS = frozenset({
    "about", "address", "algorithm", "analyst", "at", "attempt", "code", "columns", "detail", "digest",
    "federation", "generation", "here", "kind", "method", "name", "peer", "port", "print", "reason",
    "role", "round", "serial", "site", "sites", "state", "study", "there", "type", "version", "why",
})  # fmt: skip


def event(event_name: str, level: int = logging.INFO, **values: object) -> None:
    """Log `name key=value ...`, with keys of `FIELDS` alone; digests are cut to twelve characters."""
    if unknown := sorted(values.keys() - FIELDS):
        raise TypeError(
            f"log fields {unknown} are not in eigenveil_common.log.FIELDS; add them if they never hold data"
        )
    shown_fields = {key: _plain(value) for key, value in values.items()}
    text = " ".join([event_name, *(f"{key}={_quoted(value)}" for key, value in shown_fields.items())])
    logger.log(level, "%s", text, extra={"event_name": event_name, "fields": shown_fields})


def log_error(event_name: str, **values: object) -> None:
    """Log an event at level ERROR, for behaviour that no honest peer shows."""
    event(event_name, logging.ERROR, **values)


def _plain(value: object) -> str | int:
    """Return a value as an integer or as text, with digests cut."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value)
    return text[:12] if DIGEST.fullmatch(text) else text


def _quoted(value: str | int) -> str:
    text = str(value)
    return text if text and text.replace("-", "").isalnum() else repr(text)


def frame_locations(trace: TracebackType | None) -> str:
    """Return the frames of a traceback as `file:line`, from the outermost to the innermost."""
    frames = traceback.walk_tb(trace)
    return " ".join(f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in frames)


class _TextFormatter(logging.Formatter):
    """Formatter of `time level name key=value ...`, with an exception on the same line."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%SZ"
    default_msec_format = None

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname} {_message(record)}"
        return " ".join([line, *(f"{key}={value!r}" for key, value in _exception_fields(record).items())])


class _JsonFormatter(_TextFormatter):
    """Formatter of one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        name = getattr(record, "event_name", None)
        shown_fields: dict[str, Any] = getattr(record, "fields", {}) if name else {"detail": _message(record)}
        return json.dumps({
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "event": name or "message",
            **shown_fields,
            **_exception_fields(record),
        })  # fmt: skip


def _message(record: logging.LogRecord) -> str:
    """Return our own message; of a library's, which may quote data, only its location."""
    if record.name.partition(".")[0] == logger.name:
        return record.getMessage()
    return f"library {record.name} at {record.module}:{record.lineno}"


def _exception_fields(record: logging.LogRecord) -> dict[str, str]:
    if not record.exc_info or record.exc_info[0] is None:
        return {}
    kind, _, trace = record.exc_info
    return {"type": kind.__qualname__, "at": frame_locations(trace)}


def to_stderr(form: Format = Format.TEXT) -> None:
    """Log to standard error in UTC, also library logs and uncaught exceptions of threads and destructors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form is Format.JSON else _TextFormatter())
    logging.getLogger().addHandler(handler)
    logger.setLevel(logging.INFO)
    threading.excepthook = sys.unraisablehook = _uncaught


def _uncaught(thrown: threading.ExceptHookArgs | sys.UnraisableHookArgs) -> None:
    log_error("bug", type=thrown.exc_type.__qualname__, at=frame_locations(thrown.exc_traceback))

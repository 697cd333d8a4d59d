"""One line per state change: ids and codes, never values, counts or norms.

What a line may say is a closed list of fields; an exception is told by its type and its places, never
by its text, which may quote a cell.
"""

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
    """`log_format`: lines of text, or one JSON object a line."""

    TEXT = "text"
    JSON = "json"


# Ids, codes, names that studies or configurations state in public, times of certificates, lengths of a
# ledger (`here`, `there`), and sentences of eigenveil.errors. A number of records, a value, a norm or a
# statistic has no place here.
FIELDS = frozenset({
    "about", "address", "algorithm", "analyst", "at", "attempt", "code", "columns", "detail", "digest",
    "federation", "generation", "here", "kind", "method", "name", "peer", "port", "print", "reason",
    "role", "round", "serial", "site", "sites", "state", "study", "there", "type", "version", "why",
})  # fmt: skip


def event(event_name: str, level: int = logging.INFO, **words: object) -> None:
    """Log `name key=value ...`; digests are shortened to twelve digits.

    Raises:
        TypeError: a field that is not in `FIELDS`.
    """
    strange = sorted(words.keys() - FIELDS)
    if strange:
        raise TypeError(
            f"log fields {strange} are not in eigenveil_common.log.FIELDS; add them if they never hold data"
        )
    said = {key: _plain(value) for key, value in words.items()}
    text = " ".join([event_name, *(f"{key}={_quoted(value)}" for key, value in said.items())])
    logger.log(level, "%s", text, extra={"event_name": event_name, "said": said})


def alarm(event_name: str, **words: object) -> None:
    """`event` for what an honest peer never does."""
    event(event_name, logging.ERROR, **words)


def _plain(value: object) -> str | int:
    """A digest shortened, a whole number, or text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value)
    return text[:12] if DIGEST.fullmatch(text) else text


def _quoted(value: str | int) -> str:
    text = str(value)
    return text if text and text.replace("-", "").isalnum() else repr(text)


def places(trace: TracebackType | None) -> str:
    """Where an exception came from: `file:line` from the outermost frame to the innermost."""
    frames = traceback.walk_tb(trace)
    return " ".join(f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in frames)


class _Lines(logging.Formatter):
    """`time level name key=value ...`, and an exception on the same line."""

    def __init__(self) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record, self.datefmt)}Z {record.levelname} {_said(record)}"
        surprise = _surprise(record)
        return " ".join([line, *(f"{key}={value!r}" for key, value in surprise.items())])


class _Objects(_Lines):
    """The same as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        name = getattr(record, "event_name", None)
        said: dict[str, Any] = getattr(record, "said", {}) if name else {"detail": _said(record)}
        line = {
            "time": f"{self.formatTime(record, self.datefmt)}Z",
            "level": record.levelname.lower(),
            "event": name or "message",
            **said,
            **_surprise(record),
        }
        return json.dumps(line)


def _said(record: logging.LogRecord) -> str:
    """Our own text; of a library's, which may quote anything, only where it came from."""
    ours = record.name.partition(".")[0] == logger.name
    return record.getMessage() if ours else f"library {record.name} at {record.module}:{record.lineno}"


def _surprise(record: logging.LogRecord) -> dict[str, str]:
    if not record.exc_info or record.exc_info[0] is None:
        return {}
    kind, _, trace = record.exc_info
    return {"type": kind.__qualname__, "at": places(trace)}


def to_stderr(form: Format = Format.TEXT) -> None:
    """Send the lines to standard error, with the time in UTC; also what libraries log, and what ends a thread
    or is thrown where nobody can catch it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Objects() if form is Format.JSON else _Lines())
    logging.getLogger().addHandler(handler)
    logger.setLevel(logging.INFO)
    threading.excepthook = sys.unraisablehook = _uncaught


def _uncaught(thrown: threading.ExceptHookArgs | sys.UnraisableHookArgs) -> None:
    alarm("bug", type=thrown.exc_type.__qualname__, at=places(thrown.exc_traceback))

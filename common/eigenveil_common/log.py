"""One line per state change: ids and codes, never values, counts or norms."""

from __future__ import annotations

import logging
import sys
import time

logger = logging.getLogger("eigenveil")


def event(name: str, level: int = logging.INFO, **words: object) -> None:
    """Log `name key=value ...`; digests are shortened to twelve digits."""
    logger.log(level, "%s", " ".join([name, *(f"{key}={_short(value)}" for key, value in words.items())]))


def alarm(name: str, **words: object) -> None:
    """`event` for what an honest peer never does."""
    event(name, logging.ERROR, **words)


def _short(value: object) -> str:
    text = str(value)
    if len(text) == 64 and all(digit in "0123456789abcdef" for digit in text):
        return text[:12]
    return text if text and text.replace("-", "").isalnum() else repr(text)


def to_stderr() -> None:
    """Send the lines to standard error, with the time in UTC."""
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

"""The one place that reads the wall clock, so that tests can bring their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]


def unix_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def as_datetime(milliseconds: int) -> datetime:
    """The same instant, aware, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)

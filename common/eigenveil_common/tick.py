"""A grid in time on which what was drawn leaves, so that how long the draw took says nothing [P6]."""

from __future__ import annotations

import time

TICK = 0.002  # seconds


def await_tick() -> None:
    time.sleep(TICK - time.monotonic() % TICK)

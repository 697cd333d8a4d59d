"""What is said while records are read that take long."""

from __future__ import annotations

import time

from eigenveil_common.log import event

SECONDS = 10.0


class Progress:
    """Says every ten seconds that records are still coming; not how many: a log holds no number of records,
    nor a rate that would tell it."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def goes_on(self) -> None:
        """More records came."""
        if time.monotonic() - self._said >= SECONDS:
            event("records-loading")
            self._said = time.monotonic()

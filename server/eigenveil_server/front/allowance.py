"""So much at once, and so much a second from then on."""

from __future__ import annotations

import time


class Allowance:
    """`burst` units to begin with and `rate` more each second, never above `burst`. Whoever has any left may
    spend, also beyond it; the debt is waited for."""

    def __init__(self, *, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        self._at = time.monotonic()

    def spend(self, cost: float) -> bool:
        """Take `cost` if anything is left; whether it was."""
        left = self._now()
        if left <= 0:
            return False
        self._left = left - cost
        return True

    def fine(self, cost: float) -> None:
        """Take `cost` in any case. Debts do not add up to more than the largest of them."""
        self._left = min(self._now(), max(self._now() - cost, -cost))

    @property
    def left(self) -> float:
        """What there is to spend; a debt is negative."""
        return self._now()

    @property
    def seconds(self) -> float:
        """Until something is left again."""
        return max(0.0, -self._now() / self._rate)

    @property
    def full(self) -> bool:
        """Whether nothing was spent lately."""
        return self._now() >= self._burst

    def _now(self) -> float:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left

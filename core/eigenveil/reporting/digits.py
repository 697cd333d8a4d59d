"""Few digits of a number that must not look smaller than it is."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal


def rounded_up(value: float, digits: int) -> float:
    """The least number of so many significant digits, in decimals, that is at least `value`."""
    shortest = Decimal(repr(value))  # 1e-5 is stated as 1e-5, though its float is a little above
    return float(Context(prec=digits, rounding=ROUND_CEILING).plus(shortest))

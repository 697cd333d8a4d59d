"""Words with a meaning in cells: those for "missing", in every file, in one, or in one column."""

from __future__ import annotations

import math
from contextlib import suppress

from eigenveil_common.config import ensure

MISSING = ("", "na", "n/a", "nan", "-nan", "null")


def number(code: str) -> float | None:
    """Return a code as a number; None if it is not one."""
    with suppress(ValueError):
        if code.isascii() and "_" not in code and math.isfinite(value := float(code)):
            return value
    return None


def check_codes(key: str, codes: tuple[str, ...]) -> None:
    """Raise an error if two codes match one cell, or a code has blanks around it."""
    ensure(len(set(map(_same, codes))) == len(codes), f"{key}: a code is repeated. Remove one")
    for code in codes:
        ensure(code == code.strip(), f"{key}: {code!r} has blanks around it. Remove them")


def merged(codes: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the codes, then those of `more` that match other cells."""
    known = set(map(_same, codes))
    return (*codes, *(code for code in more if _same(code) not in known))


def _same(code: str) -> str | float:
    """Return what is equal for two codes that match the same cells as numbers."""
    value = number(code)
    return code if value is None else value

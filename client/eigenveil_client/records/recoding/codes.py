"""Words that a site gives a meaning: codes for missing, words with a number, levels."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eigenveil.numerics.encoding import IntArray
from eigenveil_client.records.cells import MISSING, readable
from eigenveil_common.config import need


def number(code: str) -> float | None:
    """A code as a number; None if it is none."""
    with suppress(ValueError):
        if code.isascii() and "_" not in code and math.isfinite(value := float(code)):
            return value
    return None


def check_codes(key: str, codes: tuple[str, ...]) -> None:
    """Insist that no two codes can be one cell, and that none has blanks around it.

    Raises:
        RequestError: code `bad-config`.
    """
    same = [code if number(code) is None else number(code) for code in codes]
    need(len(set(same)) == len(same), f"{key}: a code is there twice")
    for code in codes:
        need(code == code.strip(), f"{key}: {code!r} has blanks around it; cells are read without")


def places(words: pa.Array, codes: tuple[str, ...]) -> IntArray:
    """Which code each word is, letter for letter or as a number; -1 if none.

    Shape: (n,) -> (n,).
    """
    found = pc.fill_null(pc.index_in(words, value_set=pa.array(codes, pa.string())), -1)
    same: IntArray = found.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = {value: place for place, code in enumerate(codes) if (value := number(code)) is not None}
    if numbers and (same < 0).any():
        values = readable(words).to_numpy(zero_copy_only=False)
        for value, place in numbers.items():
            same[(same < 0) & (values == value)] = place
    return same


def is_missing(words: pa.Array, codes: tuple[str, ...]) -> pa.Array:
    """Which words say that there is no value: what says so everywhere, and `codes`, in any case; and null."""
    lowered = tuple(code.lower() for code in codes)
    named = places(pc.utf8_lower(words), (*MISSING, *lowered)) >= 0
    return pc.or_(pa.array(named), pc.is_null(words))

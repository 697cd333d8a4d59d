"""Words that a site gives a meaning: codes for missing, words with a number, levels."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil_client.records.tables.cells import MISSING, readable
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Words:
    """The cells of a column of text as its distinct words, null where missing, and which of them each row
    has: one that is no number is often there many times.

    Shape: words (k,), indices (rows,), null where the cell is.
    """

    words: pa.Array
    indices: pa.Array

    @property
    def said(self) -> NDArray[np.bool_]:
        """Which of the words are not missing. Shape: (k,)."""
        found: NDArray[np.bool_] = self.words.is_valid().to_numpy(zero_copy_only=False)
        return found

    def values(self, of_words: FloatArray) -> FloatArray:
        """What each row has, NaN if its cell is null. Shape: (k,) -> (rows,)."""
        numbers = pa.array(of_words, pa.float64()).take(self.indices)
        found: FloatArray = numbers.to_numpy(zero_copy_only=False)
        return found

    def where(self, of_words: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which rows have one of these words. Shape: (k,) -> (rows,)."""
        found: NDArray[np.bool_] = self.values(np.where(of_words, 1.0, 0.0)) == 1
        return found


def distinct(cells: pa.Array, codes: tuple[str, ...]) -> Words:
    """The words of a column, of which some say that there is no value: those that say so everywhere, and
    `codes`, in any case."""
    encoded = cells.dictionary_encode()
    words, lowered = encoded.dictionary, tuple(code.lower() for code in codes)
    missing = places(pc.utf8_lower(words), (*MISSING, *lowered)) >= 0
    words = pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), words)
    return Words(words=words, indices=encoded.indices)

"""Forty digits that two people compare by telephone.

They are a card's digest modulo 10^40. To show somebody a card of one's own under the digits of an honest
site's takes about 2^132 cards (log2 10^40 = 132.9). Two cards of one's own under the same digits take about
2^66, and win nothing: whoever makes both could as well hand on the secrets of one.
"""

from __future__ import annotations

import re

from eigenveil.errors import Code, RequestError

GROUPS, DIGITS = 8, 5
BETWEEN = re.compile(r"[\s.,:-]+")  # as people write, read out and paste them
WHOLE = re.compile(rf"[0-9]{{{GROUPS * DIGITS}}}")


def fingerprint(digest: str) -> str:
    """Eight groups of five decimal digits, of a digest in hexadecimal."""
    return _grouped(f"{int(digest, 16) % 10 ** (GROUPS * DIGITS):0{GROUPS * DIGITS}d}")


def typed_fingerprint(text: str) -> str:
    """What a person typed, in that form.

    Raises:
        RequestError: code `bad-argument`, these are not forty digits.
    """
    digits = BETWEEN.sub("", text)
    if WHOLE.fullmatch(digits) is None:
        wanted = f"type {GROUPS * DIGITS} digits, {GROUPS} groups of {DIGITS}"
        found = f"there are {len(digits)}" if re.fullmatch("[0-9]*", digits) else "there is something else"
        raise RequestError(Code.BAD_ARGUMENT, f"{wanted}; {found}")
    return _grouped(digits)


def _grouped(digits: str) -> str:
    return " ".join(digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))

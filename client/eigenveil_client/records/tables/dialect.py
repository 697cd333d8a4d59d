"""How delimited text is written: what separates its cells, what its numbers look like, and its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil_common.config import need

DECIMALS = (".", ",")
THOUSANDS = ("", ".", ",", " ", "'", "_", "\u00a0", "\u202f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The words of a site about a text: `decimal` and `thousands` are the marks in a number ("" for none).

    Raises:
        RequestError: code `bad-config`.
    """

    separator: str = ","
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        one = len(self.separator) == 1 and self.separator.isascii() and self.separator not in '"\r\n'
        need(one, "separator must be one ASCII character that is no quote and no line break")
        need(self.decimal in DECIMALS, 'decimal must be "." or ","')
        need(self.thousands in THOUSANDS, f"thousands must be one of {', '.join(map(repr, THOUSANDS))}")
        need(self.thousands != self.decimal, "thousands and decimal must be different marks")
        need(_is_text(self.encoding), "encoding must be one that Python knows, such as utf-8 or latin-1")


def _is_text(encoding: str) -> bool:
    try:
        return "a".encode(encoding).decode(encoding) == "a"
    except (LookupError, UnicodeError):
        return False


COMMAS = Dialect()

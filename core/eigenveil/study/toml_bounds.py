"""The bounds of a TOML text, held before anything is built of it.

`tomllib` keeps for each part of a dotted key what was said of every shorter one, so that a key of 50,000
parts takes gigabytes, and reads arrays and inline tables by recursion. The scan sees each character once and
keeps nothing but the brackets that are open, of which there are never more than `DEEPEST`.

It takes a text apart as `tomllib` does up to the first error of that, and stops at nothing itself: whatever
`tomllib` would have built before it met an error has been counted.
"""

from __future__ import annotations

import re

DEEPEST = 16  # tables and arrays within each other, the text itself among them; our own files need four
MOST_CHARACTERS = 4 * 2**20  # twice the longest study that is planned
MOST_KEYS = 2**18  # each part of a dotted key is one; 20,000 columns have 100,000
LONGEST_WORD = 1024  # characters of a number, a date or a bare key: longer numbers cannot even be printed

NEWLINE = "\n"
_WORD = r"""[^\s"'#\[\]{}.=,]"""
# No alternative is ever left for another once it has matched (`*+`): each character is looked at a fixed
# number of times, and a string without an end goes on to where `tomllib` refuses it.
_TOKEN = re.compile(
    rf"""
      \#[^\n]*+
    | \"\"\" (?: [^"\\]++ | \\. | "(?!"") )*+ (?: "{{3,5}}+ )?+
    | ''' (?: [^']++ | '(?!'') )*+ (?: '{{3,5}}+ )?+
    | " (?: [^"\\\n]++ | \\[^\n] )*+ "?+
    | ' [^'\n]*+ '?+
    | (?P<long> {_WORD}{{{LONGEST_WORD + 1}}} )
    | {_WORD}++
    | (?P<mark> \n++ | [\[\]{{}}.=,] )
    """,
    re.VERBOSE | re.DOTALL,
)


def check_bounds(text: str) -> None:
    """Refuse a text that would cost more than its length.

    Raises:
        ValueError: it has too many characters, keys or levels, or a word that is too long.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has over {MOST_CHARACTERS} characters")
    path = _Path()
    for token in _TOKEN.finditer(text):
        mark, word = token["mark"], token["long"]
        if mark is not None:
            path.take(mark[0])
        if word is not None or path.depth > DEEPEST or path.keys > MOST_KEYS:
            raise ValueError(f"line {text.count(NEWLINE, 0, token.start()) + 1} {path.fault()}")


class _Path:
    """Where in the nesting of a text its next key or value stands; the text itself is the first level."""

    def __init__(self) -> None:
        self.depth = 1
        self.keys = 0
        self._table = 1  # the depth of the table that the last header opened
        self._in_header = False
        self._in_key = True
        # Of each array or inline table that is open: the depth around it, and whether it has keys.
        self._open: list[tuple[int, bool]] = []

    def fault(self) -> str:
        """Return what is wrong where the scan stands."""
        if self.depth > DEEPEST:
            return f"nests tables and arrays more than {DEEPEST} deep; write them side by side"
        if self.keys > MOST_KEYS:
            return f"has key number {MOST_KEYS + 1}, and no more are read; ask for fewer columns"
        return f"has a number or name of over {LONGEST_WORD} characters; put a text in quotation marks"

    def take(self, mark: str) -> None:
        """Go on past a mark that stands in no string and no comment."""
        match mark:
            case "\n" if not self._open:
                self._line_ends()
            case "[" if self._in_key and not self._open:
                self._header_opens()
            case "[" | "{":
                self._value_opens(keyed=mark == "{")
            case "]" | "}" if self._open:
                self.depth, _ = self._open.pop()
                self._in_key = False
            case "," if self._open:
                around, self._in_key = self._open[-1]
                self.depth = around + 1
            case "." if self._in_key:
                self.depth += 1
                self.keys += 1
            case "=" if self._in_key:
                self._in_key = False
                self.keys += 1

    def _line_ends(self) -> None:
        if self._in_header:
            self._table, self._in_header = self.depth, False
        self.depth, self._in_key = self._table, True

    def _header_opens(self) -> None:
        """The second bracket of an array of tables is a level as well."""
        self.depth = self.depth + 1 if self._in_header else 2
        self.keys += 1
        self._in_header = True

    def _value_opens(self, *, keyed: bool) -> None:
        self._open.append((self.depth, keyed))
        self.depth += 1
        self._in_key = keyed

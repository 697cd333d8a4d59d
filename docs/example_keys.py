"""The keys of an explained configuration file, each with its example and the words that stand beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

TABLE = re.compile(r"^(?:# )?(\[\[?[\w.]+\]?\])(?:\s{2,}# (.*))?$")
KEY = re.compile(r"""^(?P<off># )?(?P<key>[a-z_]+|"[^"]+") = (?P<value>.*?)(?:\s{2,}# (?P<beside>.*))?$""")
FURTHER = re.compile(r"^#? {8,}# (.*)$")
COLUMN = re.compile(r"^\[column\.\w+\]$")


@dataclass(slots=True, kw_only=True)
class Entry:
    """A key of a table ("" at the top), an example of its line, and what it means."""

    table: str
    key: str
    example: str
    meaning: str


def entries(text: str) -> list[Entry]:
    """Every key once, where it stands first, in the order of the file."""
    found: dict[tuple[str, str], Entry] = {}
    for one in _read(text):
        remaining = found.setdefault((one.table, one.key), one)
        remaining.meaning = remaining.meaning or one.meaning
    return sorted(found.values(), key=lambda one: list(dict.fromkeys(t for t, _ in found)).index(one.table))


def _read(text: str) -> Iterator[Entry]:
    """In order. Keys that are only shown, as comments, stand directly below the head of their table."""
    table, only_shown, below, intro, beside = "", False, False, "", ""
    words: list[str] = []
    last: Entry | None = None
    for line in text.splitlines():
        head, pair, further = TABLE.match(line), KEY.match(line), FURTHER.match(line)
        if head:
            table, only_shown, below = COLUMN.sub("[column.NAME]", head[1]), line.startswith("#"), True
            intro, words, last = head[2] or " ".join(words) or intro, [], None
        elif further and last:
            beside = f"{beside} {further[1]}".strip()
            last.meaning = beside
        elif pair and (below or not pair["off"]):
            beside = pair["beside"] or ""
            meaning = beside or " ".join(words) or intro
            example = f"{pair['key']} = {pair['value']}"
            last = Entry(table=table, key=pair["key"], example=example, meaning=meaning)
            yield last
        elif line.startswith("#"):
            words, last = [*([] if last else words), line[2:]], None
        else:
            table, below = ("" if only_shown else table), False
            only_shown, words, last = False, [], None

"""Tables [column.NAME] in the text of site.toml: read, set and removed, with all other text as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.study.checks import parse_toml, toml_text

TABLE = re.compile(r"^\s*\[")
COLUMN = re.compile(r"^\s*\[column\.(?P<key>.+)\]\s*(?:#.*)?$")
BARE = re.compile(r"[A-Za-z0-9_-]+")
SET_OPTION = "--set "
WIDTH = 100  # characters of an array on one line


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Lines of a file: of the table [column.`name`] with the comments just above it, or others."""

    lines: tuple[str, ...]
    name: str | None = None


def table_text(name: str, keys: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """Return a table [column.NAME] as text, below its comments."""
    key = name if BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    lines = [*(f"# {comment}" for comment in comments), f"[column.{key}]"]
    return "\n".join([*lines, key_lines(keys)])


def key_lines(keys: Mapping[str, Any]) -> str:
    """Return keys as lines of TOML; a map of words is one line."""
    return "".join(f"{name} = {_value(value)}\n" for name, value in keys.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{json.dumps(k, ensure_ascii=False)} = {_value(v)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return _array([_value(one) for one in value])
    if isinstance(value, str) and "\n" in value and _is_plain(value):
        return f'"""\n{value}"""'
    return toml_text({"k": value}).removeprefix("k = ").strip()


def _is_plain(text: str) -> bool:
    """Return True for a text that stands in a file as it is, such as a SELECT of several lines."""
    quoted = '"""' in text or text.endswith('"') or "\\" in text
    return text.replace("\n", "").isprintable() and not quoted


def _array(items: Sequence[str]) -> str:
    line = f"[{', '.join(items)}]"
    if len(line) <= WIDTH:
        return line
    return "[\n" + "".join(f"    {item},\n" for item in items) + "]"


def blocks(text: str) -> Iterator[TextBlock]:
    """Yield the blocks of a file, whose lines are all of its lines."""
    lines, begun, name = text.splitlines(), list[str](), None
    for line in lines:
        if not TABLE.match(line) or _is_inside(begun):
            begun.append(line)
            continue
        above = _comments_above(begun)
        head = begun[: len(begun) - above]
        if head:
            yield TextBlock(lines=tuple(head), name=name)
        begun = [*begun[len(begun) - above :], line]
        found = COLUMN.match(line)
        name = None if found is None else _name(found["key"])
    if begun:
        yield TextBlock(lines=tuple(begun), name=name)


def _is_inside(begun: Sequence[str]) -> bool:
    """Return True within a text of several lines, such as a SELECT."""
    return any("\n".join(begun).count(mark) % 2 for mark in ('"""', "'''"))


def _comments_above(lines: Sequence[str]) -> int:
    count = 0
    while count < len(lines) and lines[-1 - count].lstrip().startswith("#"):
        count += 1
    return count if count < len(lines) else 0


def _name(key: str) -> str | None:
    try:
        table = parse_toml(f"[column.{key}]\n")["column"]
    except ValueError:
        return None
    return next(iter(table)) if len(table) == 1 else None


def with_tables(
    text: str, tables: Mapping[str, str], gone: Collection[str] = (), mapped: Collection[str] = ()
) -> str:
    """Return the text of site.toml with the tables in `tables` (texts by their names) set, those in `gone`
    removed, and the open questions about the columns in `mapped` removed.

    Raises InternalError, code `bug`: another part of the file would mean something else."""
    waiting = dict(tables)
    kept: list[str] = []
    for block in blocks(text):
        if block.name in waiting:
            kept.append(waiting.pop(block.name).rstrip("\n"))
            kept.append("")
        elif block.name is None or block.name not in gone:
            kept += block.lines
    kept = [line for line in kept if not any(is_question(line, header) for header in mapped)]
    body = "\n".join(kept).rstrip("\n")
    changed = "\n\n".join([body, *(table.rstrip("\n") for table in waiting.values())]) + "\n"
    _check_rest(text, changed)
    return changed


def _check_rest(before: str, after: str) -> None:
    rest = [
        {k: v for k, v in parse_toml(text).items() if k not in ("column", "columns")}
        for text in (before, after)
    ]
    if rest[0] != rest[1]:
        raise InternalError(
            Code.BUG, "site.toml would change beyond its tables [column.NAME]; edit it by hand"
        )


def question_line(header: str, column: str, question: str) -> str:
    """Return the comment of an open question about a column of the records."""
    wanted = json.dumps(f"{header}={column}", ensure_ascii=False)
    return f"# Not sure: {question} To set it: eigenveil-site map {SET_OPTION}{wanted}"


def is_question(line: str, header: str) -> bool:
    """Return True for the line of an open question about a column of the records."""
    begun = json.dumps(f"{header}=", ensure_ascii=False).rstrip('"')
    return line.startswith("# Not sure: ") and f"{SET_OPTION}{begun}" in line


def with_columns(text: str, added: Sequence[str], gone: Collection[str]) -> str:
    """Return the text with the key `columns` changed, unless it allows all columns or is not there.

    Raises RequestError, code `bad-config`: no column would be left."""
    stated = parse_toml(text).get("columns")
    if not isinstance(stated, list) or ANY in stated:
        return text
    wanted = list(dict.fromkeys([*(one for one in stated if one not in gone), *added]))
    if wanted == stated:
        return text
    if not wanted:
        raise RequestError(Code.BAD_CONFIG, "no column would be left; set another one first")
    return with_names(text, "columns", wanted)


def with_names(text: str, key: str, names: Sequence[str]) -> str:
    """Return the text with the array `key` of the top table set to some names; a new one stands first."""
    start, end = _span(text, key) if key in parse_toml(text) else (0, 0)
    return f"{text[:start]}{key} = {_value(names)}{text[end:] if end else f'{chr(10)}{text}'}"


def _span(text: str, key: str) -> tuple[int, int]:
    """Return the place of a key and its array in a text that is valid TOML."""
    found = re.search(rf"^{key}\s*=", text, re.MULTILINE)
    if found is None:
        raise InternalError(Code.BUG, f"the key {key} of site.toml is not found; edit it by hand")
    for end in range(found.end(), len(text) + 1):
        if end == len(text) or text[end] == "]":
            piece = text[found.start() : end + 1]
            try:
                parse_toml(piece)
            except ValueError:
                continue
            return found.start(), end + 1
    raise InternalError(Code.BUG, f"the key {key} of site.toml is not closed; edit it by hand")

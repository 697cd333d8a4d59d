"""Tables [column.NAME] in the text of site.toml: read, set and removed, with all other text as it is."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.study.checks import parse_toml, toml_text

TABLE = re.compile(r"^\s*\[")
COLUMN = re.compile(r"^\s*\[column\.(?P<key>.+)\]\s*(?:#.*)?$")
RECORDS = re.compile(r"^\s*\[records\]\s*(?:#.*)?\n", re.MULTILINE)
RECORDS_KEY = re.compile(r"""^(records\s*=\s*)(?:"[^"\n]*"|'[^'\n]*'|\{[^}\n]*\})""", re.MULTILINE)
BARE = re.compile(r"[A-Za-z0-9_-]+")
# Outside of a text of several lines: what opens one, a comment, or a text on one line.
TOKEN = re.compile(r"""\"{3}|'{3}|#|"(?:\\.|[^"\\])*"|'[^']*'""")
CLOSED = {'"""': re.compile(r'(?:\\.|[^\\])*?"{3}'), "'''": re.compile(r".*?'{3}")}
SET_OPTION = "--set "
WIDTH = 100  # characters of an array on one line
LINE_ENDS = "\u2028\u2029"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBlock:
    """Lines of a file: of the table [column.`name`] to its last key, with the comments just above it and the
    blank lines below; or others."""

    lines: tuple[str, ...]
    name: str | None = None


def table_text(name: str, keys: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """Return a table [column.NAME] as text, below its comments."""
    lines = [*map(comment_line, comments), f"[column.{name if BARE.fullmatch(name) else _quoted(name)}]"]
    return "\n".join([*lines, key_lines(keys)])


def comment_line(text: str) -> str:
    """Return a text as one line of a comment, without signs that some reader takes for the end of a line."""
    shown = ("?" if unicodedata.category(one)[0] == "C" or one in LINE_ENDS else one for one in text)
    return f"# {''.join(shown)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def key_lines(keys: Mapping[str, Any]) -> str:
    """Return keys as lines of TOML; a map of words is one line."""
    return "".join(f"{name} = {_value(value)}\n" for name, value in keys.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(k)} = {_value(v)}" for k, v in value.items()) + "}"
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
    begun, name, mark = list[str](), None, ""
    for line in text.split("\n"):
        outside, mark = not mark, _open_mark(line, mark)
        if not outside or not TABLE.match(line):
            begun.append(line)
            continue
        above = _comments_above(begun)
        yield from _parts(begun[: len(begun) - above], name)
        begun = [*begun[len(begun) - above :], line]
        found = COLUMN.match(line)
        name = None if found is None else _name(found["key"])
    yield from _parts(begun, name)


def _parts(lines: Sequence[str], name: str | None) -> Iterator[TextBlock]:
    """Yield a block, and apart from a table the comments below its keys."""
    end = len(lines)
    if name is not None:
        while lines[end - 1].lstrip()[:1] in ("", "#"):
            end -= 1
        while end < len(lines) and not lines[end].strip():
            end += 1
    for part, named in ((lines[:end], name), (lines[end:], None)):
        if part:
            yield TextBlock(lines=tuple(part), name=named)


def _open_mark(line: str, mark: str) -> str:
    """Return the mark of a text of several lines, such as a SELECT, that is open after a line; "" if none
    is. `mark`: the one that is open before it."""
    place = 0
    while place <= len(line):
        found = CLOSED[mark].match(line, place) if mark else TOKEN.search(line, place)
        if found is None:
            return mark
        if found[0] == "#":
            return ""
        mark = found[0] if not mark and found[0] in CLOSED else ""
        place = found.end()
    return mark


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
        elif block.name is None or block.name not in {*gone, *tables}:
            kept += block.lines
    kept = [line for line in kept if not any(is_question(line, header) for header in mapped)]
    body = "\n".join(kept).rstrip("\n")
    changed = "\n\n".join([body, *(table.rstrip("\n") for table in waiting.values())]) + "\n"
    wanted = parse_toml(text)
    columns = {key: value for key, value in wanted.get("column", {}).items() if key not in gone}
    for table in tables.values():
        columns |= parse_toml(table)["column"]
    check_meaning(changed, wanted | {"column": columns})
    return changed


def check_meaning(text: str, wanted: Mapping[str, Any]) -> None:
    """Raise InternalError, code `bug`, if a changed text of site.toml means something else."""
    try:
        found = parse_toml(text)
    except ValueError:
        found = {}
    if {"column": {}} | found != {"column": {}} | dict(wanted):
        raise InternalError(Code.BUG, "site.toml would change beyond what was asked; edit it by hand")


def question_line(setting: str, question: str) -> str:
    """Return the comment of an open question about a column of the records, with the `setting` of `map` that
    answers it, in the folder of the file."""
    wanted = json.dumps(setting, ensure_ascii=False)
    return comment_line(f"Not sure: {question} From here: eigenveil-site map {SET_OPTION}{wanted}")


def is_question(line: str, header: str) -> bool:
    """Return True for the line of an open question about a column of the records."""
    begun = json.dumps(f"{header}=", ensure_ascii=False).rstrip('"')
    return line.startswith("# Not sure: ") and comment_line(f"{SET_OPTION}{begun}")[2:] in line


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


def with_missing(text: str, words: Sequence[str]) -> str:
    """Return the text with the codes for "no value" of all columns set. Raises InternalError: code `bug`,
    another part of the file would mean something else."""
    wanted = parse_toml(text)
    stated = wanted["records"]
    wanted["records"] = ({"source": stated} if isinstance(stated, str) else stated) | {"missing": list(words)}
    keys = ", ".join(f"{name} = {_value(value)}" for name, value in wanted["records"].items())
    parts = ["\n".join(one.lines) for one in blocks(text)]
    for place, part in enumerate(parts):
        if found := RECORDS.search(part):
            parts[place] = part[: found.end()] + with_names(part[found.end() :], "missing", words)
            break
    else:
        parts = [RECORDS_KEY.sub(lambda one: f"{one[1]}{{{keys}}}", text, count=1)]
    changed = "\n".join(parts)
    check_meaning(changed, wanted)
    return changed


def with_number(text: str, name: str, value: int, table: str = "") -> str:
    """Return the text with a key of the file or of a table set to a whole number. Raises InternalError: code
    `bug`, another part of the file would mean something else."""
    wanted = parse_toml(text)
    (wanted.setdefault(table, {}) if table else wanted)[name] = value
    lines, here, mark, head = text.split("\n"), not table, "", 0
    for place, line in enumerate(lines):
        outside, mark = not mark, _open_mark(line, mark)
        if outside and TABLE.match(line):
            here = line.partition("#")[0].strip() == f"[{table}]"
            head = place + 1 if here else head
        found = re.match(rf"(\s*{name}\s*=\s*)[0-9_]+", line) if here and outside else None
        if found is not None:
            lines[place] = f"{found[1]}{value}{line[found.end() :]}"
            break
    else:
        if table and not head:
            lines, head = [*lines, f"[{table}]"], len(lines) + 1
        lines.insert(head, f"{name} = {value}")
    changed = "\n".join(lines).rstrip("\n") + "\n"
    check_meaning(changed, wanted)
    return changed


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

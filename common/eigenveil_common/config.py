"""Configuration files: TOML into a frozen dataclass, whose fields say all about each key.

A field that is a dataclass itself has its keys in the same table as the others, unless it is a section.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from eigenveil.errors import Code, RequestError
from eigenveil.study.plain_values import Readers, check_keys, checked, hints, parse_toml, required
from eigenveil_common.files import read

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a key's value must be beyond its type. `words` is what a refusal says, of {key} and {value}."""

    holds: Callable[[Any], object]
    words: str


ABOVE_ZERO = Rule(holds=lambda value: 0 < value < math.inf, words="{key} must be a number above 0")
AT_LEAST_ONE = Rule(holds=lambda value: value >= 1, words="{key} must be at least 1")
INSIDE_ONE = Rule(holds=lambda value: 0 < value < 1, words="{key} must lie strictly between 0 and 1")
BELOW_ONE = Rule(holds=lambda value: 0 <= value < 1, words="{key} must lie between 0 and 1")


def key(default: Any, rule: Rule | None = None, about: str = "") -> Any:
    """A key of a configuration: its default, its rule, and how the command that writes one explains it."""
    return field(default=default, metadata={"rule": rule, "about": about})


def table(read: Callable[[Any], Any], default: Any) -> Any:
    """A key that is a table of its own, which `read` makes a value of."""
    return field(default=default, metadata={"table": read})


def section(default: Any = MISSING) -> Any:
    """A key that is a dataclass with a table of its own; a text instead of the table is its first key."""
    return field(default=default, metadata={"section": True})


def need(holds: object, message: str) -> None:
    """Insist on what a configuration must be.

    Raises:
        RequestError: code `bad-config`.
    """
    if not holds:
        raise _refuse(message)


def check_rules(config: Any) -> None:
    """Insist on the rule of each key.

    Raises:
        RequestError: code `bad-config`, naming the key.
    """
    for one in fields(config):
        rule, value = one.metadata.get("rule"), getattr(config, one.name)
        if rule is not None:
            need(rule.holds(value), rule.words.format(key=one.name, value=value))


def keys(kind: Any) -> dict[str, Field[Any]]:
    """Every key of a configuration, in order."""
    found: dict[str, Field[Any]] = {}
    for one in fields(kind):
        inner = hints(kind)[one.name]
        flat = is_dataclass(inner) and "section" not in one.metadata
        found |= keys(inner) if flat else {one.name: one}
    return found


def values(config: Any) -> dict[str, Any]:
    """The value of every key of a configuration, in the order of `keys`."""
    found: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        found |= values(value) if is_dataclass(value) else {one.name: value}
    return found


def load(path: Path, kind: type[T]) -> T:
    """The configuration in `path`. Paths in it are relative to its folder.

    Raises:
        RequestError: code `bad-config`, naming the file and the key.
    """
    try:
        data = parse_toml(read(path).decode())
    except ValueError as problem:
        raise _refuse(f"{path} is not valid TOML: {problem}") from problem
    readers = {Path: lambda text: (path.parent / text).resolve(), date: _day}
    check_keys(data, keys(kind), required(kind), str(path), _refuse)  # type: ignore[arg-type]
    try:
        made: T = _made(kind, data, readers)
    except RequestError as problem:
        raise RequestError(problem.code, f"{path}: {problem}") from problem
    return made


def _made(kind: Any, data: Mapping[str, Any], readers: Readers) -> Any:
    own, inner = dict[str, Any](), dict[str, Any]()
    for one in fields(kind):
        name, hint = one.name, hints(kind)[one.name]
        if "section" in one.metadata:
            if name in data:
                inner[name] = _section(hint, name, data[name], readers)
        elif is_dataclass(hint):
            inner[name] = _made(hint, data, readers)
        elif name in data and "table" in one.metadata:
            inner[name] = one.metadata["table"](data[name])
        elif name in data:
            own[name] = data[name]
    return kind(**checked(kind, own, _refuse, readers), **inner)


def _section(kind: Any, name: str, data: Any, readers: Readers) -> Any:
    if isinstance(data, str):
        data = {next(iter(keys(kind))): data}
    need(isinstance(data, dict), f"{name} must be a text or a table [{name}]")
    check_keys(data, keys(kind), required(kind), f"[{name}]", _refuse)
    return _made(kind, data, readers)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise ValueError('must be a day such as "2027-12-31", or "" for none') from None


def _refuse(message: str) -> RequestError:
    return RequestError(Code.BAD_CONFIG, message)

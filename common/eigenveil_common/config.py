"""Configuration files: TOML into a frozen dataclass, whose fields describe the keys. The keys of a nested
dataclass are in the same table as the others, unless it is a section."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from eigenveil.errors import Code, RequestError
from eigenveil.study.checks import Readers, check_keys, coerce_values, field_types, parse_toml, required
from eigenveil_common.files import read

T = TypeVar("T")


class KeyRule(NamedTuple):
    """Condition on a key's value. `message` is the error text, with {key} and {value}."""

    holds: Callable[[Any], object]
    message: str


ABOVE_ZERO = KeyRule(lambda value: 0 < value < math.inf, "{key} must be a number above 0")
AT_LEAST_ONE = KeyRule(lambda value: value >= 1, "{key} must be at least 1")
INSIDE_ONE = KeyRule(lambda value: 0 < value < 1, "{key} must lie strictly between 0 and 1")
BELOW_ONE = KeyRule(lambda value: 0 <= value < 1, "{key} must lie between 0 and 1")


def between(least: float, most: float) -> KeyRule:
    """Return the rule: at least `least`, and at most `most`."""
    return KeyRule(lambda value: least <= value <= most, f"{{key}} must lie between {least:g} and {most:g}")


def key(default: Any, rule: KeyRule | None = None, about: str = "") -> Any:
    """Return a key of a configuration: default, rule, and the comment for a generated file."""
    return field(default=default, metadata={"rule": rule, "about": about})


def table(read: Callable[[Any], Any], default: Any) -> Any:
    """Return a key that is a separate table, converted by `read`."""
    return field(default=default, metadata={"table": read})


def section(default: Any = MISSING) -> Any:
    """Return a key that is a dataclass in its own table; text instead of the table sets its first key."""
    return field(default=default, metadata={"section": True})


def ensure(holds: object, message: str) -> None:
    """Raise RequestError, code `bad-config`, with `message` if a condition on a configuration is not met."""
    if not holds:
        raise _bad_config(message)


def check_rules(config: Any) -> None:
    """Check the rule of each key. Raises RequestError: code `bad-config`, naming the key."""
    for one in fields(config):
        rule, value = one.metadata.get("rule"), getattr(config, one.name)
        if rule is not None:
            ensure(rule.holds(value), rule.message.format(key=one.name, value=value))


def keys(kind: Any) -> dict[str, Field[Any]]:
    """Return every key of a configuration, in order."""
    found: dict[str, Field[Any]] = {}
    for one in fields(kind):
        nested = field_types(kind)[one.name]
        flat = is_dataclass(nested) and "section" not in one.metadata
        found |= keys(nested) if flat else {one.name: one}
    return found


def values(config: Any) -> dict[str, Any]:
    """Return the value of every key of a configuration, in the order of `keys`."""
    found: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        found |= values(value) if is_dataclass(value) else {one.name: value}
    return found


def load(path: Path, kind: type[T]) -> T:
    """Return the configuration in `path`; paths in it are relative to its folder."""
    try:
        data = parse_toml(read(path).decode())
    except ValueError as problem:
        raise _bad_config(f"{path} is not valid TOML: {problem}") from problem
    readers = {Path: lambda text: (path.parent / text).resolve(), date: _date}
    check_keys(data, keys(kind), required(kind), str(path), _bad_config)  # type: ignore[arg-type]
    try:
        made: T = _build(kind, data, readers)
    except RequestError as problem:
        raise RequestError(problem.code, f"{path}: {problem}") from problem
    return made


def _build(kind: Any, data: Mapping[str, Any], readers: Readers) -> Any:
    direct, nested = dict[str, Any](), dict[str, Any]()
    for one in fields(kind):
        name, hint = one.name, field_types(kind)[one.name]
        if is_dataclass(hint) and "section" not in one.metadata:
            nested[name] = _build(hint, data, readers)
        elif name not in data:
            continue
        elif "section" in one.metadata:
            nested[name] = _section(hint, name, data[name], readers)
        elif "table" in one.metadata:
            nested[name] = one.metadata["table"](data[name])
        else:
            direct[name] = data[name]
    return kind(**coerce_values(kind, direct, _bad_config, readers), **nested)


def _section(kind: Any, name: str, data: Any, readers: Readers) -> Any:
    if isinstance(data, str):
        data = {next(iter(keys(kind))): data}
    ensure(isinstance(data, dict), f"{name} must be a text or a table [{name}]")
    check_keys(data, keys(kind), required(kind), f"[{name}]", _bad_config)
    return _build(kind, data, readers)


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise ValueError('must be a day such as "2027-12-31", or "" for none') from None


def _bad_config(message: str) -> RequestError:
    return RequestError(Code.BAD_CONFIG, message)

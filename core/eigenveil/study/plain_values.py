"""Plain values, as TOML and JSON hold them, into checked ones and back: studies and configurations alike."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import tomli_w

from eigenveil.errors import RequestError
from eigenveil.study.toml_bounds import check_bounds

BOM = "\ufeff"  # some editors write it before the first character; it says nothing
WORDS: dict[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    tuple[str, ...]: "a list of names",
}  # fmt: skip

Refuse = Callable[[str], RequestError]  # makes the error of a sentence
Readers = Mapping[Any, Callable[[str], Any]]  # a text as another type, or ValueError saying what it must be


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML text says.

    Raises:
        ValueError: it is none, or beyond the bounds that are held before it is read (`toml_bounds`).
    """
    text = text.removeprefix(BOM)
    check_bounds(text)
    return tomllib.loads(text)


def toml_text(data: Mapping[str, Any]) -> str:
    """A TOML text that says `data`; what is None is left out."""
    return tomli_w.dumps(_without_none(data))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """The inverse of `checked`, for texts, numbers, enums and tuples of them."""
    if isinstance(value, Enum):
        return value.value
    return [plain(one) for one in value] if isinstance(value, tuple) else value


@cache
def hints(kind: Any) -> dict[str, Any]:
    found = get_type_hints(kind)
    return {one.name: found[one.name] for one in fields(kind)}


@cache
def required(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def check_keys(
    data: Collection[str], known: Collection[str], needed: Collection[str], where: str, refuse: Refuse
) -> None:
    """Insist that `data` has no key but `known` ones, and each that is `needed`."""
    strange = sorted(set(data) - set(known))
    if strange:
        raise refuse(f"{where}: unknown key {', '.join(strange)} (known: {', '.join(known)})")
    missing = [key for key in needed if key not in data]
    if missing:
        raise refuse(f"{where} misses: {', '.join(missing)}")


def checked(kind: Any, data: Mapping[str, Any], refuse: Refuse, readers: Readers) -> dict[str, Any]:
    """Each value of `data` as its field of the dataclass `kind` wants it."""
    wanted = hints(kind)
    return {key: _value(wanted[key], key, value, refuse, readers) for key, value in data.items()}


def _value(hint: Any, key: str, value: Any, refuse: Refuse, readers: Readers) -> Any:
    if isinstance(hint, UnionType):  # or None
        if value is None:
            return None
        hint = get_args(hint)[0]
    if hint in readers and isinstance(value, str):
        try:
            return readers[hint](value)
        except ValueError as problem:
            raise refuse(f"{key} = {value!r} {problem}") from problem
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(hint, key, value, refuse)
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        if all(type(one) is get_args(hint)[0] for one in value):
            return tuple(value)
    elif hint is float and type(value) is int:
        return as_float(key, value, refuse)
    elif type(value) is hint:
        return value
    raise refuse(f"{key} = {value!r} must be {WORDS.get(hint, 'a text')}")


def _member(kind: type[Enum], key: str, value: Any, refuse: Refuse) -> Enum:
    try:
        return kind(value)
    except ValueError as problem:
        known = ", ".join(f'"{one.value}"' for one in kind)
        raise refuse(f"{key} = {value!r} is unknown; choose one of: {known}") from problem


def as_float(key: str, value: Any, refuse: Refuse) -> float:
    """A number of any kind as a 64-bit one."""
    try:
        return float(value)
    except OverflowError as problem:
        raise refuse(f"{key} is beyond the range of 64-bit numbers") from problem

"""Configuration files: TOML into a frozen dataclass; an unknown key or a wrong type is refused."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TypeVar, get_type_hints

from eigenveil.errors import Code, RequestError
from eigenveil_common.files import read

T = TypeVar("T")


def load(path: Path, kind: type[T]) -> T:
    """The configuration in `path`.

    Fields are str, int, float, bool, Path (relative to the file's folder; or Path | None) or tuple[str, ...].

    Raises:
        RequestError: code `bad-config`, naming the key.
    """
    try:
        data = tomllib.loads(read(path).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is not valid TOML: {problem}") from problem
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    strange = sorted(set(data) - set(known))
    if strange:
        raise RequestError(
            Code.BAD_CONFIG, f"{path}: unknown key {', '.join(strange)} (known: {', '.join(known)})"
        )
    missing = [
        name for name, f in known.items()
        if name not in data and f.default is MISSING and f.default_factory is MISSING
    ]  # fmt: skip
    if missing:
        raise RequestError(Code.BAD_CONFIG, f"{path} misses: {', '.join(missing)}")
    return kind(**{key: _value(path, key, value, hints[key]) for key, value in data.items()})


def _value(path: Path, key: str, value: object, hint: object) -> object:
    if hint in (Path, Path | None) and isinstance(value, str):
        return (path.parent / value).resolve()
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint == tuple[str, ...] and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if hint in (str, int, bool) and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise RequestError(Code.BAD_CONFIG, f"{path}: {key} = {value!r} must be of type {wanted}")

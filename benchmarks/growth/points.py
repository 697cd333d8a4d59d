"""A measured point is one line of JSON: what was measured, what came out, when, on how large a machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eigenveil import __version__

DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Measured step and its sizes; 0 for those that do not matter. `numbers` are those of an answer."""

    what: str
    records: int = 0
    columns: int = 0
    components: int = 0
    numbers: int = 0
    sites: int = 0
    studies: int = 0
    regions: int = 0

    def __str__(self) -> str:
        sizes = {name: value for name, value in asdict(self).items() if name != "what" and value}
        return " ".join([self.what, *(f"{name}={value:,}" for name, value in sizes.items())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Measured values: seconds, bytes, by name."""

    setting: Setting
    measured: Mapping[str, float]


class Points:
    """The points of one file, which is written anew with each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[Setting, dict[str, Any]] = {}
        if path.exists():
            names = {one.name for one in fields(Setting)}
            for line in path.read_text().splitlines():
                stored = json.loads(line)
                self._lines[Setting(**{name: stored[name] for name in names})] = stored

    def __contains__(self, setting: Setting) -> bool:
        return setting in self._lines

    def retain(self, wanted: set[Setting]) -> None:
        """Forget what nobody asks for any more."""
        self._lines = {setting: line for setting, line in self._lines.items() if setting in wanted}

    def add(self, point: Point) -> None:
        short = {name: float(f"{value:.{DIGITS}g}") for name, value in point.measured.items()}
        self._lines[point.setting] = asdict(point.setting) | short | machine()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(self._lines, key=lambda one: tuple(asdict(one).values()))
        text = "".join(json.dumps(self._lines[setting]) + "\n" for setting in ordered)
        beside = self._path.with_suffix(".new")  # an interrupt leaves the old file or the new one
        beside.write_text(text)
        beside.replace(self._path)

    def all(self) -> list[Point]:
        """Every point."""
        isolated = {one.name for one in fields(Setting)} | set(machine())

        def measured(line: dict[str, Any]) -> dict[str, float]:
            return {name: value for name, value in line.items() if name not in isolated}

        return [Point(setting=setting, measured=measured(line)) for setting, line in self._lines.items()]


def machine() -> dict[str, Any]:
    """All that is said of when and where: the day, cores, memory, and the version that was measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "version": __version__,
    }

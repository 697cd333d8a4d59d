"""Quality of a column, as in a hospital's files: counted before, and after repair by its rules."""

from __future__ import annotations

from pathlib import Path


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path

"""How good a column is, as a hospital's files are: counted before, and after what its rules mend."""

from __future__ import annotations

from pathlib import Path


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path

"""Files of this tree for the repo tests, generated code apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "eigenveil": ROOT / "core",
    "eigenveil_common": ROOT / "common",
    "eigenveil_server": ROOT / "server",
    "eigenveil_client": ROOT / "client",
    "eigenveil_proto": ROOT / "proto",
}
FOLDERS = ("core", "common", "server", "client", "proto", "tests", "benchmarks", "deploy", "docs")
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def is_generated(path: Path) -> bool:
    return any(path.match(pattern) for pattern in GENERATED)


def files(pattern: str, *folders: str) -> Iterator[Path]:
    """Hand-written files matching `pattern` below the named folders of the tree (default: all)."""
    for folder in folders or FOLDERS:
        yield from (p for p in sorted((ROOT / folder).rglob(pattern)) if not is_generated(p))


def documents() -> Iterator[Path]:
    """Every Markdown file a reader is meant to read, but for what `make docs-site` writes."""
    yield from sorted(ROOT.glob("*.md"))
    yield from (path for path in files("*.md") if path.parent != ROOT / "docs" / "reference")


def module_name(path: Path) -> str:
    """Dotted name of a module of one of the packages."""
    package = next(root for root in PACKAGES.values() if path.is_relative_to(root))
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def shown(path: Path) -> str:
    """The path as a person would type it from the top of the tree."""
    return path.relative_to(ROOT).as_posix()

"""TOML has one reader in the product, which holds its bounds before it reads: `parse_toml`."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.repo.tree import files, shown

READER = "core/eigenveil/study/checks.py"
PARSERS = ("tomllib", "tomli", "toml", "tomlkit", "rtoml", "pytoml")
BY_NAME = ("__import__", "import_module")


def readers(source: str) -> list[int]:
    """Lines of `source` that get at a parser of TOML."""
    return sorted({node.lineno for node in ast.walk(ast.parse(source)) if _is_parser(node)})  # type: ignore[attr-defined]


def _is_parser(node: ast.AST) -> bool:
    match node:
        case ast.Import():
            names = [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(module), level=0):
            names = [module]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in BY_NAME:
            names = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
        case _:
            return False
    return any(name.split(".")[0] in PARSERS for name in names)


PLANTED = (
    "import tomllib", "import tomllib as t", "from tomllib import loads", "from tomllib._parser import loads",
    "import tomli", "def late():\n    import tomllib",
    "import importlib\nx = importlib.import_module('tomllib')",
)  # fmt: skip


def test_every_planted_reader_is_found_and_nothing_else() -> None:
    assert {text: readers(text) for text in PLANTED} == {text: [text.count("\n") + 1] for text in PLANTED}
    innocent = ("import tomli_w", "from eigenveil.study.toml import x", "x = 'tomllib'")
    assert [text for text in innocent if readers(text)] == []


def test_only_parse_toml_reads_toml() -> None:
    def lines(path: Path) -> list[int]:
        return readers(path.read_text())

    found = {shown(path) for path in files("*.py", "core", "common", "server", "client") if lines(path)}
    assert found == {READER}

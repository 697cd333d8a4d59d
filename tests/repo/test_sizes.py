"""A file says one thing and a function fits on a screen; both have a hard ceiling."""

from __future__ import annotations

import ast

from tests.repo.tree import files, shown

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 60


def long_functions(source: str) -> list[str]:
    """Functions and methods of `source` over the ceiling, with their lengths."""
    return [
        f"{node.lineno}: {node.name} has {length} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    ]


def is_long(source: str) -> bool:
    return len(source.splitlines()) > MOST_LINES_OF_A_FILE


def test_the_ceilings_are_400_and_60_lines() -> None:
    for kind in ("def", "async def"):
        longest = f"class C:\n  {kind} f(self):\n" + "    x = 1\n" * 59
        assert long_functions(longest) == []
        assert long_functions(longest + "    x = 1\n") == ["2: f has 61 lines"]
    assert not is_long("x = 1\n" * 400)
    assert is_long("x = 1\n" * 401)


def test_no_file_is_too_long() -> None:
    assert [shown(path) for path in files("*.py") if is_long(path.read_text())] == []


def test_no_function_is_too_long() -> None:
    found = [f"{shown(p)}:{text}" for p in files("*.py") for text in long_functions(p.read_text())]
    assert found == []

"""Plain words: no name has a retired word, docstrings say what is returned, class names are unique."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.repo.tree import files, shown

PRODUCT = ("core", "common", "server", "client")

# docs/GLOSSARY.md has the word that stands in place of each.
RETIRED = frozenset({
    "spoken", "says", "dear", "pays", "loud", "louder", "quieter", "shorten", "shortened", "guess",
    "imagined", "lean", "legs", "bent", "silent", "opening", "guest", "desk", "hub", "bell", "patience",
    "leash", "whoever", "troubles", "poor", "talk", "aside", "whose", "greeted", "hear", "wish", "living",
    "elder", "foreign", "meant",
})  # fmt: skip
OPENERS = frozenset(["What", "Whether", "How", "Who", "Whose", "Where", "When", "Which", "Why"])
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for path in files("*.py", *(folders or PRODUCT)):
        yield shown(path), ast.parse(path.read_text())


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives: functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
            ):
                yield name
            case _:
                pass


def retired(tree: ast.AST) -> set[str]:
    return {name for name in bound_names(tree) if RETIRED & {part.lower() for part in PART.findall(name)}}


def question_openers(tree: ast.AST) -> list[str]:
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
    return [text for text in texts if text and text.split()[0].rstrip(",:") in OPENERS]


def repeated_classes(parsed: Iterator[tuple[str, ast.Module]]) -> dict[str, list[str]]:
    homes = defaultdict(list)
    for path, tree in parsed:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path)
    return {name: paths for name, paths in homes.items() if len(paths) > 1}


def test_no_name_of_the_product_has_a_retired_word() -> None:
    assert {path: found for path, tree in trees() if (found := retired(tree))} == {}


def test_no_docstring_opens_with_a_question_word() -> None:
    parsed = trees(*PRODUCT, "tests", "benchmarks", "docs")
    assert {path: found for path, tree in parsed if (found := question_openers(tree))} == {}


def test_no_two_classes_of_the_product_have_one_name() -> None:
    assert repeated_classes(trees()) == {}


@pytest.mark.parametrize(
    ("source", "check"),
    [
        ("def shorten(x): ...", retired),
        ("class OpeningHours: ...", retired),
        ("x.patience_seconds = 1", retired),
        ('def f():\n    """Whether it is so."""', question_openers),
    ],
)
def test_a_planted_word_is_found(source: str, check: object) -> None:
    assert callable(check)
    assert check(ast.parse(source))
    assert not check(ast.parse('def clip(x):\n    """Return x, clipped."""'))


def test_a_second_class_of_one_name_is_found() -> None:
    twice = iter([("a.py", ast.parse("class A: ...")), ("b.py", ast.parse("class A: ..."))])
    assert repeated_classes(twice) == {"A": ["a.py", "b.py"]}

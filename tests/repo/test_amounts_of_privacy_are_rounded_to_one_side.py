"""No epsilon, delta, mu or rho is shortened for a reader but by `eigenveil.accounting.formatting` [P5].

Found by their names: in Python a format of digits, `round` and `%`, in templates a filter that rounds to
the nearest. What is shown in full (`{epsilon}`, JSON) is no matter of this test."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from tests.repo.tree import ROOT, files, shown

PRODUCT = ("core", "common", "server", "client")
HOME = ROOT / "core/eigenveil/accounting/formatting.py"
NAMES = frozenset({
    "epsilon", "epsilons", "delta", "eps", "mu", "rho", "spent", "price", "cost", "left", "committed",
    "reserved", "atto",
})  # fmt: skip
IN_TEMPLATES = NAMES | {"wanted", "used", "free"}
# Numbers of other things that have such a name.
OTHER = {
    ("common/eigenveil_common/doctor.py", "left")  # days
}
SHOWN = {"console", "commands", "admin", "analyst", "web", "reporting"}  # folders whose values are shown
SHARES = NAMES | {"used", "wanted", "share"}
UNITS = {"MICRO", "ATTO"}  # in which amounts are counted: a quotient by one is the amount, and no share
# A float for programs, which is shown as `percent_up` of its integers.
FLOATS = {("client/eigenveil_client/analyst/python/run.py", "row.spent_micro_rho / max(row.micro_rho, 1)")}
DIGITS = re.compile(r"[.,\d]*[eEfFgG%]$|\.\d+$")
BY_PERCENT = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[eEfFgG]")
PLACE = re.compile(r"\{(\w+):[^{}]*[eEfFgG%]\}")  # of `str.format`
TO_NEAREST = {"round", "format", "number"}
BLOCK = re.compile(r"\{\{(.*?)\}\}|\{%-?\s*(trans\b.*?|set\b.*?)%\}", re.S)
WIDTH = re.compile(r"width: \{\{.*?\}\}")  # of a bar, which nobody reads
PART = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")
ROUNDS = re.compile(r"\|\s*(?:number|round|int|percent)\b|%\.?\d*[efg]")


def parts(name: str) -> set[str]:
    return set(name.split("_")) | {name}


def mentioned_names(node: ast.AST) -> set[str]:
    """The parts of every name, attribute and text key below `node`, but for what conversions are called."""
    found: set[str] = set()
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found |= parts(name)
            case ast.Subscript(slice=ast.Constant(value=str() as name)):
                found |= parts(name)
            case _:
                pass
    return found


def formatted(tree: ast.AST) -> Iterator[ast.expr]:
    """Rounded values: by the format of an f-string, `round`, `format`, `number` or a percent sign."""
    for node in ast.walk(tree):
        match node:
            case ast.FormattedValue(
                value=value, format_spec=ast.JoinedStr(values=[ast.Constant(value=spec)])
            ):
                if DIGITS.search(str(spec)):
                    yield value
            case ast.FormattedValue(value=value, format_spec=ast.JoinedStr()):
                yield value  # so many digits as a variable says
            case ast.Constant(value=str() as text) if found := PLACE.findall(text):
                yield from (ast.copy_location(ast.Name(id=name), node) for name in found)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[value, *_]):
                if name in TO_NEAREST:
                    yield value
            case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod(), right=value):
                if BY_PERCENT.search(text):
                    yield value
            case _:
                pass


def rounded(source: str, path: str = "") -> list[str]:
    """Amounts of privacy that Python source shortens by itself."""
    found = []
    for value in formatted(ast.parse(source)):
        names = {name for name in mentioned_names(value) & NAMES if (path, name) not in OTHER}
        if names:
            found.append(f"{value.lineno}: {ast.unparse(value)}")
    return found


def divided(source: str, path: str = "") -> list[str]:
    """Shares of an amount that Python source makes a float of: the nearest, which may lie on either side."""
    quotients = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        if mentioned_names(node.left) & SHARES and ast.unparse(node.right) not in UNITS
    ]
    found = [(one.lineno, ast.unparse(one)) for one in quotients]
    return [f"{line}: {text}" for line, text in found if (path, text) not in FLOATS]


def rounded_in_template(source: str) -> list[str]:
    """The same of a template: a filter that rounds on a value whose name tells an amount."""
    found = []
    for block in BLOCK.finditer(WIDTH.sub("", source)):
        for piece in (block[1] or block[2]).split(","):
            names = {part for name in PART.findall(piece) for one in name.split(".") for part in parts(one)}
            if ROUNDS.search(piece) and names & IN_TEMPLATES:
                found.append(piece.strip())
    return found


def test_python_rounds_no_amount_by_itself() -> None:
    sources = [path for path in files("*.py", *PRODUCT) if path != HOME]
    assert len(sources) > 250
    found = {shown(path): rounded(path.read_text(), shown(path)) for path in sources}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_no_share_of_an_amount_that_is_shown_is_a_float() -> None:
    sources = [path for path in files("*.py", *PRODUCT) if SHOWN & set(path.parts)]
    assert len(sources) > 60
    found = {shown(path): divided(path.read_text(), shown(path)) for path in sources}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_template_rounds_no_amount_to_the_nearest() -> None:
    sources = [path for kind in ("*.html", "*.j2") for path in files(f"templates/{kind}", *PRODUCT)]
    assert len(sources) > 25
    found = {shown(path): rounded_in_template(path.read_text()) for path in sources}
    assert {path: pieces for path, pieces in found.items() if pieces} == {}


@pytest.mark.parametrize(
    ("check", "planted", "fine"),
    [
        (
            divided,
            ["used / limit.micro_rho", "price.micro_rho / limit", "(committed.micro_rho - spent) / whole"],
            ["Fraction(used, limit) + seconds / 60 + micro_rho / MICRO + used // limit"],
        ),
        (
            rounded,
            [
                'f"{epsilon:g}"', 'f"{study.delta:.3g}"', 'f"{row[\'epsilon\']:.4f}"', "round(by_rho, 4)",
                '"{mu:.2f}"', 'f"{100 * spent_micro_rho / whole:.0f} %"', '"%.3g" % mu',
                "words.number(budget.left, 3)", 'format(left_epsilon, ".2f")', 'f"{epsilon:.{digits}g}"',
                'f"{plan.study.epsilon * 2:,.1f}"', "lambda row: f'{row.epsilon:.3g}'", "round(epsilon)",
            ],
            ['f"{epsilon}"', 'f"{shown_up(epsilon)}"', 'f"{days:.1f}"', 'f"{name:<9}"'],
        ),
        (
            rounded_in_template,
            [
                "{{ left.left.epsilon | number(5) }}", '{{ "%.1f" | format(100 * share_spent) }}',
                "{% trans share=(100 * card.share.wanted) | number(3) %}{{ share }}{% endtrans %}",
                "{{ (100 * line.spent) | round | int }}", "{{ guarantee.mu | number }}",
            ],
            ["{{ left.epsilon | down(5) }}", "{{ result.records | number }}"],
        ),
    ],
)  # fmt: skip
def test_each_check_finds_what_is_planted_and_nothing_else(
    check: Callable[[str], list[str]], planted: list[str], fine: list[str]
) -> None:
    assert [one for one in planted if not check(one)] + [one for one in fine if check(one)] == []

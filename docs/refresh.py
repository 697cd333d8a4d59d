"""`make docs`: draw the packages from their imports, and point the tour's links at today's files.

Text between marks and the paths of links to symbols are written here; all other words stay."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import draw_parties
import grimp

ROOT = Path(__file__).resolve().parents[1]
HOUSE, TOUR = ROOT / "docs" / "HOUSE.md", ROOT / "docs" / "TOUR.md"
PACKAGES = ("eigenveil", "eigenveil_common", "eigenveil_server", "eigenveil_client")
EVERYWHERE = {"errors", "_version"}  # imported by nearly everything: their arrows would hide the others
LINK = re.compile(r"\[`(?P<symbol>[\w.]+)`\]\((?P<path>\.\./[\w/.]+\.py)\)")
MARKS = re.compile(r"(<!-- drawn: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Edges = dict[str, set[str]]


def house() -> str:
    """docs/HOUSE.md with its pictures as the imports are now."""
    return MARKS.sub(lambda mark: mark[1] + picture(mark[2]) + mark[3], HOUSE.read_text())


def picture(package: str) -> str:
    """A package's folders and top modules, with arrows to what they import, as a Mermaid flowchart.

    An arrow that follows from two others is left out: what a box may import is whatever it leads to."""
    edges = reduced(imports(package))
    boxes = [
        f"  {name}" + ("([" + name + "/])" if folder(package, name) else f"[{name}]")
        for name in sorted(edges)
    ]
    arrows = [f"  {one} --> {' & '.join(sorted(edges[one]))}" for one in sorted(edges) if edges[one]]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *arrows, "```", ""])


def folder(package: str, name: str) -> bool:
    """True if this part of a package is a folder."""
    return (ROOT / home(package) / package / name).is_dir()


def home(package: str) -> str:
    """The folder of the tree that holds a package."""
    return "core" if package == "eigenveil" else package.removeprefix("eigenveil_")


def imports(package: str) -> Edges:
    """Imports between parts of a package, by any of their modules."""
    graph = _graph()
    parts = {name: name.rpartition(".")[2] for name in graph.find_children(package)}
    edges: Edges = {short: set() for short in parts.values() if short not in EVERYWHERE}
    for one, short in parts.items():
        for other, target in parts.items():
            shown = one != other and {short, target}.isdisjoint(EVERYWHERE)
            if shown and graph.direct_import_exists(importer=one, imported=other, as_packages=True):
                edges[short].add(target)
    return edges


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def reduced(edges: Edges) -> Edges:
    """The same without the arrows that follow from others."""
    return {
        one: {other for other in others if not any(leads(edges, mid, other) for mid in others - {other})}
        for one, others in edges.items()
    }


def leads(edges: Edges, one: str, other: str) -> bool:
    """True if arrows lead from `one` to `other`."""
    return any(mid == other or leads(edges, mid, other) for mid in edges[one])


def tour() -> str:
    """Return docs/TOUR.md with every link at the file that defines its symbol."""

    def point(link: re.Match[str]) -> str:
        path = file_of(link["symbol"], (TOUR.parent / link["path"]).resolve())
        return f"[`{link['symbol']}`](../{path.relative_to(ROOT)})"

    return LINK.sub(point, TOUR.read_text())


def file_of(symbol: str, path: Path) -> Path:
    """Return `path` if it defines `symbol`, otherwise the only product file that does.

    Raises:
        LookupError: no file, or several."""
    if path.exists() and defines(symbol, path):
        return path
    found = [other for other in _product_files() if defines(symbol, other)]
    if len(found) != 1:
        names = ", ".join(str(other.relative_to(ROOT)) for other in found) or "no file"
        raise LookupError(f"docs/TOUR.md: {path.name} does not define {symbol}; defined by: {names}")
    return found[0]


def defines(symbol: str, path: Path) -> bool:
    """Return True if `path` defines `symbol`: `name`, `Class.method`, or the same after the module's name."""
    names = symbol.split(".")
    names = names[1:] if names[0] == path.stem and len(names) > 1 else names
    scope: ast.AST | None = _tree(path)
    for name in names:
        scope = next((node for defined, node in definitions(scope) if defined == name), None)
        if scope is None:
            return False
    return True


def _product_files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / home(package) / package).rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def definitions(scope: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names that are defined directly in a module or a class."""
    for node in ast.iter_child_nodes(scope):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


def main() -> int:
    """Write both pages and the picture of parties anew."""
    HOUSE.write_text(house())
    TOUR.write_text(tour())
    draw_parties.PICTURE.write_text(draw_parties.picture())
    return 0


if __name__ == "__main__":
    sys.exit(main())

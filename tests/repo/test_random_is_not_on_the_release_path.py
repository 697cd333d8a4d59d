"""Noise has one source. `random` and `numpy.random` are seedable, float and guessable, so only the
two modules that never touch a real release may name them. import-linter sees imports; this also
sees `np.random`, `scipy.stats` samplers (which draw from numpy) and modules named by a string."""

from __future__ import annotations

import ast

from tests.repo.tree import files, module_name, shown

ALLOWED = ("eigenveil.simulation", "eigenveil.noise.seeded")
MODULES = ("random", "numpy.random")
BY_NAME = ("__import__", "getattr", "import_module")


def is_random(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in MODULES)


def numpy_names(tree: ast.Module) -> set[str]:
    """Every local name of numpy in a module."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    aliases = [alias for node in imports for alias in node.names]
    bound = {a.asname or "numpy" for a in aliases if a.name.split(".")[0] == "numpy"}
    return bound | {"np", "numpy"}


def names_random(node: ast.AST, numpy: set[str]) -> bool:
    """True if this node by itself reaches a pseudo-random generator."""
    match node:
        case ast.Import():
            return any(is_random(alias.name) for alias in node.names)
        case ast.ImportFrom(module=str(module), level=0):
            return is_random(module) or any(is_random(f"{module}.{a.name}") for a in node.names)
        case ast.Attribute(attr="rvs"):
            return True
        case ast.Attribute(value=ast.Name(id=name), attr="random"):
            return name in numpy
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in BY_NAME:
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            return any(isinstance(text, str) and is_random(text) for text in texts)
    return False


def mentions(source: str) -> list[int]:
    """Lines of `source` that reach a pseudo-random generator."""
    tree = ast.parse(source)
    numpy = numpy_names(tree)
    return sorted({n.lineno for n in ast.walk(tree) if names_random(n, numpy)})  # type: ignore[attr-defined]


def is_allowed(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in ALLOWED)


PLANTED = (
    "import random", "import random as r", "from random import gauss", "import numpy.random",
    "import numpy.random as npr", "from numpy import random", "from numpy import linalg, random as r",
    "from numpy.random import default_rng", "import numpy as np\nx = np.random.default_rng(1).normal()",
    "import numpy\nx = numpy.random.normal()", "import numpy as n\nx = n.random.normal()",
    "from scipy.stats import norm\nx = norm.rvs(3)",
    "import importlib\nx = importlib.import_module('numpy.random')",
    "import numpy as np\nx = getattr(np, 'random')", "def late():\n    import random",
)  # fmt: skip
INNOCENT = (
    "import numpy as np\nx = np.zeros(3)", "from eigenveil.noise.source import draw",
    "from .random import local", "x = 'random'", "x = study.random",
)  # fmt: skip


def test_every_planted_use_is_found_and_nothing_else() -> None:
    assert {text: mentions(text) for text in PLANTED} == {text: [text.count("\n") + 1] for text in PLANTED}
    assert [text for text in INNOCENT if mentions(text)] == []
    names = ("simulation", "simulation.data", "simulators", "noise.source")
    assert [is_allowed(f"eigenveil.{name}") for name in names] == [True, True, False, False]


def test_no_module_on_the_release_path_names_random() -> None:
    paths = list(files("*.py", "core", "common", "server", "client"))
    assert paths, "no source found: is the layout as design says?"
    found = [
        f"{shown(path)}:{line}"
        for path in paths
        if not is_allowed(module_name(path))
        for line in mentions(path.read_text())
    ]
    assert found == []

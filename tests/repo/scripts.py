"""The programs of docs/, which `make docs` runs and which are no package."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType

from tests.repo.tree import ROOT

DOCS = ROOT / "docs"


@cache
def script(name: str) -> ModuleType:
    """One of them as a module; what lies beside it can be imported by it."""
    sys.path.insert(0, str(DOCS))
    try:
        spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module

"""An algorithm of the user's own, out of a Python file, and its mistakes with their line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Generator
from dataclasses import replace
from inspect import isgeneratorfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from eigenveil.algorithms import OwnAlgorithm, own
from eigenveil.errors import Code, RequestError
from eigenveil_common.files import read

HELP = "write `def my_algorithm(plan)` with a `yield` in it, as docs/own-algorithm.md shows"


def load(given: str) -> OwnAlgorithm:
    """The algorithm in FILE, which holds exactly one, or the one of that name in FILE:NAME.

    The file is run: it is the user's own, on the user's own machine. Names that begin with _ are helpers.

    Raises:
        RequestError: code `bad-argument`: the file cannot be read or run, or holds none or several.
    """
    file, _, name = given.rpartition(":")
    if not file or Path(given).exists():
        file, name = given, ""
    path = Path(file)
    found = _algorithms(path, _run(path))
    if name:
        if name not in found:
            held = f"it holds: {', '.join(found)}" if found else HELP
            raise _refused(f"{path} holds no generator function {name!r}; {held}")
        return found[name]
    public = {one: algorithm for one, algorithm in found.items() if not one.startswith("_")}
    if not public:
        raise _refused(f"{path} holds no generator function; {HELP}")
    if len(public) > 1:
        raise _refused(
            f"{path} holds several generator functions, {' and '.join(public)}: name one, such as "
            f"{path}:{next(iter(public))}, or let helpers begin with _"
        )
    return next(iter(public.values()))


def _run(path: Path) -> ModuleType:
    module = ModuleType(f"eigenveil_own_{path.stem}")
    module.__file__ = str(path)
    source = read(path)
    sys.modules[module.__name__] = module  # where dataclasses look up what they are annotated with
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except SyntaxError as problem:
        where = f"{problem.filename}, line {problem.lineno}"
        raise _refused(f"{where}: this is not Python: {problem.msg}") from problem
    except Exception as problem:
        raise _told(path, problem) from problem
    return module


def _algorithms(path: Path, module: ModuleType) -> dict[str, OwnAlgorithm]:
    """Those that the file defines, by name; a function with stated properties once."""
    stated = {name: value for name, value in vars(module).items() if isinstance(value, OwnAlgorithm)}
    behind = [algorithm.steps for algorithm in stated.values()]
    plain = {
        name: own(value)
        for name, value in vars(module).items()
        if isgeneratorfunction(value) and value.__module__ == module.__name__ and value not in behind
    }
    return {
        name: replace(algorithm, steps=_telling(path, algorithm.steps))
        for name, algorithm in (stated | plain).items()
    }


def _telling(
    path: Path, steps: Callable[[Any], Generator[Any, Any, Any]]
) -> Callable[[Any], Generator[Any, Any, Any]]:
    """The same steps, whose exceptions say where in the file they were raised."""

    def told(plan: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from steps(plan))
        except Exception as problem:
            raise _told(path, problem) from problem

    return told


def _told(path: Path, problem: Exception) -> RequestError:
    lines = [at.lineno for at in traceback.extract_tb(problem.__traceback__) if at.filename == str(path)]
    where = f"{path}, line {lines[-1]}" if lines else str(path)
    if isinstance(problem, RequestError):
        return RequestError(problem.code, f"{where}: {problem}")
    return _refused(f"{where}: {type(problem).__name__}: {problem}")


def _refused(why: str) -> RequestError:
    return RequestError(Code.BAD_ARGUMENT, why)

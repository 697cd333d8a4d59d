"""Algorithms that a comparison runs, each as a separate study, and their total cost. Custom algorithm from a
Python file; errors name the line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import isgeneratorfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from eigenveil.accounting.budget import reported_epsilon
from eigenveil.accounting.formatting import shown_up
from eigenveil.accounting.zcdp import ATTO, NO_COST, Cost
from eigenveil.algorithms import ALGORITHMS, as_custom_algorithm
from eigenveil.errors import Code, RequestError
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, default_spectrum
from eigenveil.planning.predict import Prediction, predict
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.composition import affordable
from eigenveil.study.study import Study
from eigenveil_common.files import read

_refused = partial(RequestError, Code.BAD_ARGUMENT)
MAX_NAME_LENGTH = 63  # of a study's name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmSelection:
    """Selected algorithms: those that apply, those refused, the reference, and a custom one."""

    runnable: tuple[Prediction, ...]
    refused: tuple[Prediction, ...]
    oja: bool
    own: CustomAlgorithm | None = None


def select_algorithms(
    study: Study, names: str | None, *, private: bool = False, own: CustomAlgorithm | None = None
) -> AlgorithmSelection:
    """Return the algorithms of a comma-separated list, or all; those that do not apply separately. `private`:
    only algorithms that may run on confidential records."""
    references = () if private else (Algorithm.OJA,)
    known = {algorithm.value: algorithm for algorithm in (*ALGORITHMS, *references)}
    requested = list(known) if names is None else [name.strip() for name in names.split(",")]
    unknown = [name for name in requested if name not in known]
    if unknown:
        raise _refused(f"--algorithms: {unknown[0]!r} is unknown; there are: {', '.join(known)}")
    algorithms = dict.fromkeys(known[name] for name in requested)
    oja, spectrum = Algorithm.OJA in algorithms, default_spectrum(study.dimension, study.components)
    algorithms.pop(Algorithm.OJA, None)
    predictions = [_predicted(study, one, spectrum, private) for one in algorithms]
    runnable = tuple(one for one in predictions if one.refused is None)
    if not runnable and own is None and not oja:
        reasons = "; ".join(f"{one.algorithm.value}: {one.refused}" for one in predictions)
        raise RequestError(Code.BAD_STUDY, f"none of these algorithms can run this study: {reasons}")
    refused = tuple(one for one in predictions if one.refused is not None)
    return AlgorithmSelection(runnable=runnable, refused=refused, oja=oja, own=own)


def _predicted(study: Study, algorithm: Algorithm, spectrum: AssumedSpectrum, private: bool) -> Prediction:
    if private and algorithm.properties.single_records:
        return Prediction(algorithm=algorithm, refused=f"{algorithm.value} runs in simulations only")
    return predict(study, algorithm, spectrum)


def total_cost(study: Study, algorithms: Sequence[Algorithm]) -> Cost:
    """Return the most that running all of them may charge to every budget."""
    return sum((affordable(study, algorithm) for algorithm in algorithms), NO_COST)


def cost_text(study: Study, algorithms: Sequence[Algorithm]) -> str:
    """Return the total cost as a phrase."""
    cost = total_cost(study, algorithms)
    if study.delta > 0:
        gaussian = all(algorithm.properties.gaussian for algorithm in algorithms)
        delta = study.delta + cost.atto_delta / ATTO
        epsilon = reported_epsilon(cost.micro_rho, study.delta, gaussian_only=gaussian)
        meaning = f"together ({shown_up(epsilon)}, {shown_up(delta, 2)})-differential privacy"
    else:
        meaning = f"together an epsilon of {shown_up(study.epsilon * len(algorithms))}"
    number = "1 study" if len(algorithms) == 1 else f"{len(algorithms)} studies"
    return f"{number} out of every budget, {meaning} at most"


def one_study(study: Study, algorithm: Algorithm) -> Study:
    """Return the study with that algorithm and a name derived from it."""
    ending = f"-{algorithm.value}"
    return replace(study.with_algorithm(algorithm), name=study.name[: MAX_NAME_LENGTH - len(ending)] + ending)


HELP = "write `def my_algorithm(plan)` with a `yield` in it, as docs/own-algorithm.md shows"


def load(argument: str) -> CustomAlgorithm:
    """Return the only algorithm in FILE, or the one called NAME in FILE:NAME. The file is executed: it is the
    user's own file. Names that begin with _ are helpers."""
    file, _, name = argument.rpartition(":")
    if not file or Path(argument).exists():
        file, name = argument, ""
    path = Path(file)
    found = _algorithms(path, _run(path))
    if name and name not in found:
        available = f"it has: {', '.join(found)}" if found else HELP
        raise _refused(f"{path} has no generator function {name!r}; {available}")
    if name:
        return found[name]
    public = {one: algorithm for one, algorithm in found.items() if not one.startswith("_")}
    if not public:
        raise _refused(f"{path} has no generator function; {HELP}")
    if len(public) > 1:
        todo = f"name one, such as {path}:{next(iter(public))}, or start the names of helpers with _"
        raise _refused(f"{path} has several generator functions, {' and '.join(public)}: {todo}")
    return next(iter(public.values()))


def _run(path: Path) -> ModuleType:
    module = ModuleType(f"eigenveil_own_{path.stem}")
    module.__file__ = str(path)
    source = read(path)
    sys.modules[module.__name__] = module  # dataclasses look up annotations there
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except SyntaxError as problem:
        where = f"{problem.filename}, line {problem.lineno}"
        raise _refused(f"{where}: not valid Python: {problem.msg}") from problem
    except Exception as problem:
        raise _located_error(path, problem) from problem
    return module


def _algorithms(path: Path, module: ModuleType) -> dict[str, CustomAlgorithm]:
    """Return the algorithms that the file defines, by name; a function with stated properties once."""
    declared = {name: value for name, value in vars(module).items() if isinstance(value, CustomAlgorithm)}
    wrapped_steps = [algorithm.steps for algorithm in declared.values()]
    plain = {
        name: as_custom_algorithm(value)
        for name, value in vars(module).items()
        if isgeneratorfunction(value) and value.__module__ == module.__name__ and value not in wrapped_steps
    }
    return {
        name: replace(algorithm, steps=_with_location(path, algorithm.steps))
        for name, algorithm in (declared | plain).items()
    }


def _with_location(
    path: Path, steps: Callable[[Any], Generator[Any, Any, Any]]
) -> Callable[[Any], Generator[Any, Any, Any]]:
    """Return the same steps, whose exceptions name the line in the file."""

    def located(plan: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from steps(plan))
        except Exception as problem:
            raise _located_error(path, problem) from problem

    return located


def _located_error(path: Path, problem: Exception) -> RequestError:
    lines = [at.lineno for at in traceback.extract_tb(problem.__traceback__) if at.filename == str(path)]
    where = f"{path}, line {lines[-1]}" if lines else str(path)
    if isinstance(problem, RequestError):
        return RequestError(problem.code, f"{where}: {problem}")
    return _refused(f"{where}: {type(problem).__name__}: {problem}")

"""Planning tasks, run by `python -m eigenveil_server.planning.planner` from its standard input, one by one. A
task is a message of `rounds.study_session`: the name of one of `TASKS`, its inputs, seconds of processor time
and bytes of memory, and behind them the bytes of its file, if it has one; so is a result. Nothing here has
access to keys, ledger or database."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from eigenveil.dictionary.directory import check_study, directory_from_dict
from eigenveil.dictionary.readiness import check_readiness, readiness
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.planning.choose import (
    check_all_sizes,
    make_plan,
    noise_warnings,
    possible_rehearsals,
    rehearse,
)
from eigenveil.planning.predict import predict
from eigenveil.protocol.capabilities import capabilities_from_dict, check_versions
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_to_proto
from eigenveil.reporting.explain import explain
from eigenveil.reporting.release_file import Data
from eigenveil.reporting.verify import load_release
from eigenveil.study.checks import need
from eigenveil.study.scaling import NO_SPREADS, Spreads
from eigenveil.study.study import Study
from eigenveil.study.toml import sent_study
from eigenveil_common.process_limits import release_free_memory, resident_bytes
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_server.rounds.study_session import read, write

DRAFT = "draft"  # submission id of a plan that is only explained
ENVELOPE_BYTES = 64 * 1024  # of a message besides plan and query
TaskInputs = Mapping[str, Any]
Course = tuple[RoundQuery, ...]  # the queries of one possible course of a study


def planned(**inputs: Any) -> dict[str, Any]:
    """Return the plan of a study, its largest number of rounds, warnings, and the readiness of its sites.
    Raises RequestError."""
    return _rehearsed(**inputs)[2]


def explained(**inputs: Any) -> dict[str, Any]:
    """Return the result of `planned`, with the study's queries, disclosures and costs as JSON."""
    plan, courses, value = _rehearsed(**inputs)
    explanation = explain(plan, courses) | _told(value)
    return value | {"explanation": json.dumps(explanation, sort_keys=True)}


def predicted(**inputs: Any) -> dict[str, Any]:
    """Return `explained` as values, with the expected error as sines: low, median, high (None: no model)."""
    plan, courses, value = _rehearsed(**inputs)
    error = predict(plan.study, plan.algorithm).error  # type: ignore[arg-type]  # custom algorithms have no error model
    explanation = explain(plan, courses) | _told(value)
    sines = None if error is None else [error.low, error.median, error.high]
    return value | {"explanation": explanation, "sines": sines}


def drawn(*, file: Data) -> str:
    """Return the report of the release in `file` as one HTML page. Raises RequestError without the plotting
    library."""
    try:
        from eigenveil.reporting.report import render  # an optional dependency
    except ModuleNotFoundError as problem:
        remedy = "the operator can install it: pip install 'eigenveil[coordinator,analyst]'"
        message = f"reports need {problem.name}, which is not installed here; {remedy}"
        raise RequestError(Code.BAD_CONFIG, message) from problem
    return render(load_release(file))


def again(*, study_toml: str, plan: str) -> list[str] | None:
    """Return the warnings for the analyst of a plan; None if this study did not make it."""
    study = plan_from_json(plan.encode()).study
    return _warnings(study) if study == sent_study(study_toml) else None


def _told(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an explanation states of the sites, and its warnings."""
    return {name: value[name] for name in ("warnings", "readiness")}


def _warnings(study: Study, spreads: Spreads = NO_SPREADS) -> list[str]:
    return [*study.warnings(spreads), *noise_warnings(study)]


def _rehearsed(
    *,
    study_toml: str,
    submission: str,
    analyst: str,
    directory: TaskInputs,
    most_columns: int,
    versions: TaskInputs | None = None,
) -> tuple[Plan, tuple[Course, ...], dict[str, Any]]:
    """Return the plan of a study, its possible courses, each rehearsed once, and the result of `planned`."""
    study, public = sent_study(study_toml), directory_from_dict(directory)
    need(
        study.dimension <= most_columns,
        f"this study has {study.dimension} columns, and the operator allows {most_columns} (max_columns), "
        "since planning time grows with their cube; choose fewer",
    )
    check_study(study, public)
    study.applicant.check_blanks()
    named = [one for site in study.federation.sites if (one := public.capabilities.get(site)) is not None]
    own = [] if versions is None else [capabilities_from_dict(versions)]
    plan = make_plan(
        study, federation=public.federation, submission=submission, analyst=analyst, sites=own + named
    )
    need(
        not plan.algorithm.properties.single_records,
        f"{plan.algorithm.value} would reveal single records to the coordinator; run it as a simulation",
    )
    courses = possible_rehearsals(plan)
    round_queries = [one for course in courses for one in course]
    sites = readiness(plan, public, round_queries)
    warnings = [
        *_warnings(plan.study, public.spreads),
        *check_readiness(plan, sites),
        *check_versions(plan, public.capabilities),
    ]
    check_all_sizes(plan, round_queries)
    _check_message(plan, round_queries)
    rounds = max(map(len, courses))
    value = {"plan": plan.to_json().decode(), "rounds": rounds, "warnings": warnings}
    return plan, courses, value | {"readiness": [one.to_dict() for one in sites]}


def _check_message(plan: Plan, round_queries: Sequence[RoundQuery]) -> None:
    """Check that each query fits a message with the plan, also where more records add directions."""
    largest = _largest(round_queries)
    if 4 * largest > MESSAGE_BYTES:
        largest = max(largest, _largest(rehearse(plan, plan.study.max_records)))
    if largest + len(plan.to_json()) + ENVELOPE_BYTES > MESSAGE_BYTES:
        raise RequestError(
            Code.OVERFLOW,
            f"a query of this study has {largest} bytes, and a message with its plan at most "
            f"{MESSAGE_BYTES}; choose fewer components or columns",
        )


def _largest(round_queries: Sequence[RoundQuery]) -> int:
    return max((query_to_proto(query).ByteSize() for query in round_queries), default=0)


WORKS: tuple[Callable[..., Any], ...] = (explained, predicted, planned, again, drawn)
TASKS = {work.__name__: work for work in WORKS}


def answer(task_name: str, inputs: TaskInputs) -> dict[str, Any]:
    """Return the result of a task as `done`, the `code` and `why` of an error, or `memory` at the limit."""
    try:
        return {"done": TASKS[task_name](**inputs)}
    except EigenveilError as problem:
        return {"code": problem.code.value, "why": str(problem)}
    except MemoryError:
        return {"memory": True}
    except Exception as unexpected:  # noqa: BLE001 - reported by its type only
        return {"code": Code.BUG.value, "why": f"planning failed: {type(unexpected).__qualname__}"}


def _lower_priority(nice: int) -> None:
    """Lower the priority to at most this one; it cannot rise again."""
    with suppress(PermissionError):  # a hardened unit forbids it
        if (more := nice - os.getpriority(os.PRIO_PROCESS, 0)) > 0:
            os.nice(more)


def main() -> int:
    """Run tasks until the input ends. The system ends the process at the time limit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator handles interrupts
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # not the inherited handler
    _, most = resource.getrlimit(resource.RLIMIT_DATA)  # an operator may allow less
    while (message := read(sys.stdin.buffer)) is not None:
        task, file = message
        inputs = task["inputs"] | ({"file": file.data} if file.size else {})
        # SIGPROF ends the process when it has used so much processor time; RLIMIT_CPU counts whole seconds.
        signal.setitimer(signal.ITIMER_PROF, task["seconds"])
        _lower_priority(task["nice"])
        memory = task["memory"]
        resource.setrlimit(resource.RLIMIT_DATA, (memory if most < 0 else min(memory, most), most))
        found = answer(task["work"], inputs)
        del message, file, inputs
        signal.setitimer(signal.ITIMER_PROF, 0.0)  # reading the next task takes no time of this one
        release_free_memory()
        write(sys.stdout.buffer, found | {"resident": resident_bytes()})
    return 0


if __name__ == "__main__":
    sys.exit(main())

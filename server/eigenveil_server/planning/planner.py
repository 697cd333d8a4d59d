"""What is done with an analyst's words in a process that may be killed: read, planned, rehearsed.

`python -m eigenveil_server.planning.planner` answers wishes from its standard input, one after the other. A
wish is eight bytes of length and a JSON object: the name of one of `WORKS`, its arguments, seconds of
processor time and bytes of memory; so is an answer. Nothing here knows a key, a ledger or a database.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from eigenveil.dictionary.admission import (
    Directory,
    check_rules,
    check_study,
    directory_from_dict,
    directory_to_dict,
)
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.planning.choose import doubts
from eigenveil.planning.dry_run import check_every_size, courses, rehearse
from eigenveil.planning.predict import predict
from eigenveil.planning.resolve import make_plan
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_to_proto
from eigenveil.reporting.explain import explain
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study
from eigenveil_common.process import give_back, resident_bytes
from eigenveil_common.rpc import MESSAGE_BYTES

DRAFT = "draft"  # the submission of a plan that is only explained
ENVELOPE_BYTES = 64 * 1024  # what a message holds besides the plan and the query
LENGTH_BYTES = 8
Words = Mapping[str, Any]


def explained(**words: Any) -> dict[str, Any]:
    """What `planned` says of a study, and what it would ask, reveal and cost, as JSON; refused alike."""
    plan, ways = _rehearsed(**words)
    told = json.dumps(_explained(plan, ways, words["directory"]), sort_keys=True)
    return _plan_value(plan, ways, words["directory"]) | {"explanation": told}


def foreseen(**words: Any) -> dict[str, Any]:
    """As `explained`, with the error that is to be expected of it, as sines (low, median, high); None where
    no law is known."""
    plan, ways = _rehearsed(**words)
    error = predict(plan.study, plan.algorithm).error  # type: ignore[arg-type]  # own ones have no law
    told = _explained(plan, ways, words["directory"])
    sines = None if error is None else [error.low, error.median, error.high]
    return {"plan": plan.to_json().decode(), "explanation": told, "sines": sines}


def drawn(*, document: str) -> str:
    """The report of a release, as one HTML page.

    Raises:
        RequestError: code `bad-config`, what draws pictures is not installed.
    """
    try:
        from eigenveil.reporting.report import render  # an extra: most coordinators do without
    except ModuleNotFoundError as problem:
        raise RequestError(
            Code.BAD_CONFIG,
            f"pictures need {problem.name}, which is not installed here; have the operator install it: pip "
            "install 'eigenveil[coordinator,analyst]'",
        ) from problem
    return render(json.loads(document))


def planned(**words: Any) -> dict[str, Any]:
    """The plan of a study, how many rounds it expects to ask at most, and what its analyst should know.

    Raises:
        RequestError: the study is refused.
    """
    return _plan_value(*_rehearsed(**words), words["directory"])


def _plan_value(plan: Plan, ways: tuple[tuple[RoundQuery, ...], ...], directory: Words) -> dict[str, Any]:
    warnings = [*_warnings(plan.study), *check_rules(plan, directory_from_dict(directory))]
    return {"plan": plan.to_json().decode(), "rounds": max(map(len, ways)), "warnings": warnings}


def again(*, study_toml: str, plan: str) -> list[str] | None:
    """What the analyst of a plan should know, if it was this study that made it."""
    study = plan_from_json(plan.encode()).study
    return _warnings(study) if study == parse_study(study_toml) else None


def _explained(plan: Plan, ways: tuple[tuple[RoundQuery, ...], ...], directory: Words) -> dict[str, Any]:
    """What `explain` says, and which sites will decline by their own stated rules."""
    told = explain(plan, ways)
    return told | {"warnings": [*told["warnings"], *check_rules(plan, directory_from_dict(directory))]}


def _warnings(study: Study) -> list[str]:
    return [*study.warnings(), *doubts(study)]


def _rehearsed(
    *, study_toml: str, submission: str, analyst: str, directory: Words, most_columns: int
) -> tuple[Plan, tuple[tuple[RoundQuery, ...], ...]]:
    """The plan of a study and all that it may ask, every way rehearsed once."""
    study = _parsed(study_toml, most_columns)
    public = directory_from_dict(directory)
    check_study(study, public)
    plan = make_plan(study, federation=public.federation, submission=submission, analyst=analyst)
    check_rules(plan, public)
    _check_sums(plan)
    ways = courses(plan)
    asked = [one for way in ways for one in way]
    check_every_size(plan, asked)
    _check_message(plan, asked)
    return plan, ways


def _parsed(study_toml: str, most_columns: int) -> Study:
    study = parse_study(study_toml)
    if study.dimension > most_columns:
        raise RequestError(
            Code.BAD_STUDY,
            f"this study has {study.dimension} columns, and the operator allows {most_columns} "
            "(max_columns): planning takes their cube; ask for fewer",
        )
    return study


def _check_sums(plan: Plan) -> None:
    if plan.algorithm.properties.single_records:
        raise RequestError(
            Code.BAD_STUDY,
            f"{plan.algorithm.value} would show the coordinator single records; it runs in simulations only",
        )


def _check_message(plan: Plan, asked: Sequence[RoundQuery]) -> None:
    """Every question fits a message, with the plan: also where more records let directions be added."""
    largest = _largest(asked)
    if 4 * largest > MESSAGE_BYTES:
        largest = max(largest, _largest(rehearse(plan, plan.study.max_records)))
    if largest + len(plan.to_json()) + ENVELOPE_BYTES > MESSAGE_BYTES:
        raise RequestError(
            Code.OVERFLOW,
            f"a question of this study has {largest} bytes, and a message holds {MESSAGE_BYTES} with "
            "the plan; ask for fewer components or columns",
        )


def _largest(asked: Sequence[RoundQuery]) -> int:
    return max((query_to_proto(query).ByteSize() for query in asked), default=0)


WORKS: Mapping[str, Callable[..., Any]] = {
    work.__name__: work for work in (explained, foreseen, planned, again, drawn)
}


def answer(work: str, words: Words) -> dict[str, Any]:
    """What came of a wish: `{"done": ...}`, the code and the sentence of an error, or that it takes more
    `"memory"` than it may."""
    try:
        return {"done": WORKS[work](**words)}
    except EigenveilError as problem:
        return {"code": problem.code.value, "why": str(problem)}
    except MemoryError:
        return {"memory": True}
    except Exception as surprise:  # noqa: BLE001 - told by its type, as everywhere
        return {"code": Code.BUG.value, "why": f"planning met {type(surprise).__qualname__}"}


def read(stream: IO[bytes]) -> Any:
    """The next message; None at the end."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    data = stream.read(length := int.from_bytes(head, "big"))
    return json.loads(data) if len(data) == length else None


def write(stream: IO[bytes], message: Any) -> None:
    data = json.dumps(message, default=_plain).encode()
    stream.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    stream.flush()


def _plain(word: object) -> dict[str, Any]:
    """A directory, which takes so long to spell out that no event loop may do it."""
    if isinstance(word, Directory):
        return directory_to_dict(word)
    raise TypeError(f"a {type(word).__name__} is no word of a wish")


def _yield_to_others(nice: int) -> None:
    """Have at most this priority from now on; it does not rise again."""
    with suppress(PermissionError):  # a hardened unit forbids it
        if (more := nice - os.getpriority(os.PRIO_PROCESS, 0)) > 0:
            os.nice(more)


def main() -> int:
    """Answer until nobody asks any more; the system ends this process in the middle of a wish that takes
    more than its seconds, and gives none more than its memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever asks
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # whatever was inherited
    _, most = resource.getrlimit(resource.RLIMIT_DATA)  # an operator may allow less
    while (wish := read(sys.stdin.buffer)) is not None:
        # SIGPROF ends the process when it has used so much processor time; RLIMIT_CPU counts whole seconds.
        signal.setitimer(signal.ITIMER_PROF, wish["seconds"])
        _yield_to_others(wish["nice"])
        memory = wish["memory"]
        resource.setrlimit(resource.RLIMIT_DATA, (memory if most < 0 else min(memory, most), most))
        found = answer(wish["work"], wish["words"])
        signal.setitimer(signal.ITIMER_PROF, 0.0)  # reading the next wish is not this one's time
        give_back()
        write(sys.stdout.buffer, found | {"resident": resident_bytes()})
    return 0


if __name__ == "__main__":
    sys.exit(main())

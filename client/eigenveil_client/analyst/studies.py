"""An analyst's talk with the coordinator: one call, a study that is watched, a release that is fetched."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from eigenveil.dictionary.admission import check_study
from eigenveil.dictionary.resolve import Resolved
from eigenveil.errors import Code, RequestError
from eigenveil.study.toml import parse_study, study_digest
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.dictionaries import study_of, tell_overrides
from eigenveil_client.analyst.display import Display, state_word
from eigenveil_client.analyst.profile import follow, load_profile
from eigenveil_client.analyst.releases.verify import write_result
from eigenveil_client.analyst.study_text import event_value
from eigenveil_common.command import console, errors, say
from eigenveil_proto.v1 import eigenveil_pb2 as pb

T = TypeVar("T")


def at(profile: Path | None, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> T:
    identity = load_profile(profile)

    async def talk() -> T:
        async with Analyst(identity) as analyst:
            return await work(analyst)

    return asyncio.run(talk())


def whole_study(file: Path, profile: Path | None) -> Resolved:
    """The study in a file, held against what the federation has; who asks is shown where it differs from the
    dictionary. Nothing of it was sent.

    Raises:
        RequestError: it is refused, or the federation does not have its sites or its columns.
    """
    view = at(profile, lambda analyst: analyst.federation())
    study = study_of(file, profile)
    check_study(parse_study(study.text), view.directory)
    tell_overrides(study)
    return study


def ask_before_repeating(text: str, submission: str, profile: Path | None, as_json: bool) -> None:
    """Whether a study that has, or will have, a result is to be paid for once more.

    Raises:
        RequestError: code `conflict`, it is not.
    """
    mine = bytes.fromhex(study_digest(parse_study(text)))
    rows = at(profile, lambda analyst: analyst.studies())
    lasting = (pb.STUDY_STATE_RUNNING, pb.STUDY_STATE_RELEASED)
    same = [row for row in rows if row.study_digest == mine and row.state in lasting]
    if not same or submission in (row.submission for row in same):
        return
    told = f"this very study is {state_word(same[-1].state)} as {same[-1].plan_digest.hex()[:12]}"
    price = f"submitted again it would spend another {same[-1].micro_rho} micro-rho"
    if not as_json and sys.stdin.isatty() and click.confirm(f"{told}; {price}. Submit?"):
        return
    following = follow(profile, "study", "watch", same[-1].plan_digest.hex()[:12])
    raise RequestError(
        Code.CONFLICT, f"not submitted: {told}, see `{following}`; {price}: add --again if you mean that"
    )


def watch(
    profile: Path | None, digest: bytes, name: str, *, quiet: bool = False, events: bool = False
) -> bool:
    """Whether a study was watched to its release; False when the user stopped watching.

    Raises:
        RequestError: it ended without one.
    """

    async def work(analyst: Analyst) -> pb.StudyEvent:
        last = pb.StudyEvent()
        async for last in analyst.watch(digest, display.tell):
            if events:
                click.echo(json.dumps(event_value(last), sort_keys=True))
            display.show(last)
        return last

    with Display(console, f"{name} ({digest.hex()[:12]})", quiet=quiet or events) as display:
        try:
            ended = at(profile, work)
        except KeyboardInterrupt:
            again = f"Watch again: {follow(profile, 'study', 'watch', digest.hex()[:12])}"
            errors.print(f"Stopped watching; the study goes on. {again}", markup=False, soft_wrap=True)
            return False
    if ended.state == pb.STUDY_STATE_CANCELLED:
        raise RequestError(Code.CANCELLED, "the study was cancelled; what was charged stays charged")
    if ended.state == pb.STUDY_STATE_FAILED:
        raise RequestError(Code.STUDY_FAILED, ended.failure or "the study failed")
    return True


def fetch(digest: bytes, profile: Path | None, out: Path, as_json: bool) -> None:
    data = at(profile, lambda analyst: analyst.release(digest))
    written = write_result(data, out)
    words, found = written.document["guarantee"]["words"], written.document["result"]
    declined = found["declined"]
    value = {
        "study": digest.hex(),
        "release": str(written.release),
        "report": str(written.report),
        "guarantee": written.document["guarantee"],
        "declined": declined,
        "warnings": found["warnings"],
    }
    outcome = [f"no release: {declined}"] if declined else []
    outcome += [f"warning: {sentence}" for sentence in found["warnings"]]
    say(value, as_json, "\n".join([str(written.release), str(written.report), words, *outcome]))

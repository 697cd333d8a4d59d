"""A comparison in the federation: a study for each algorithm, consented to as a whole, watched to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import click

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.choose import choose
from eigenveil.planning.predict import Prediction
from eigenveil.reporting.verify import SignedRelease, load_release
from eigenveil.study.study import Study
from eigenveil.study.toml import study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.display import state_word
from eigenveil_client.analyst.profile import follow
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.local.compare.rows import Row
from eigenveil_client.local.compare.selection import Wanted, cost_words, one_study
from eigenveil_common.command import errors
from eigenveil_proto.v1 import eigenveil_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asking:
    """Who asks what, the exact answer if there is one to compare with, and the components released so far."""

    identity: StoredIdentity
    study: Study
    truth: FloatArray | None
    found: dict[str, FloatArray] = field(default_factory=dict)


def consent(study: Study, chosen: Wanted, *, yes: bool, as_json: bool) -> None:
    """Say what all of them cost together, and insist on an agreement.

    Raises:
        RequestError: nobody can be asked. click.Abort: no.
    """
    words = cost_words(study, [one.algorithm for one in chosen.able])
    if yes:
        return
    if as_json:
        raise RequestError(Code.BAD_ARGUMENT, f"this would be {words}: agree with --yes")
    click.confirm(f"This would be {words}. Go on?", abort=True, err=True)


def steps(asking: Asking, chosen: Wanted) -> list[tuple[str, Callable[[], Row]]]:
    """What is to be run, in order: a name and a study each."""
    return [(one.algorithm.value, partial(ask, asking, one)) for one in chosen.able]


def ask(asking: Asking, prediction: Prediction) -> Row:
    """Submit one study, watch it to its end and fetch its release; a refusal, or a coordinator that does not
    answer, is a row as well: what had ended before is not lost."""
    study = one_study(asking.study, prediction.algorithm)
    blank = Row(
        algorithm=prediction.algorithm.value,
        trusted=prediction.trusted,
        masked=study.masked,
        bytes_per_site=prediction.bytes_per_site,
        study=study.name,
    )
    try:
        return asyncio.run(_ask(asking, study, blank))
    except (RequestError, PeerError) as problem:
        return replace(blank, outcome=str(problem))
    except KeyboardInterrupt:
        listing = follow(asking.identity.folder, "study", "list")
        said = f"Stopped; if {study.name} was submitted, it goes on: {listing}"
        errors.print(said, markup=False, soft_wrap=True)
        raise


async def _ask(asking: Asking, study: Study, blank: Row) -> Row:
    begin, last = time.perf_counter(), pb.StudyEvent()
    async with Analyst(asking.identity) as analyst:
        submission = await analyst.submission_id(study)
        plan, _ = await analyst.submit(study_to_toml(study), submission, tell=_show)
        digest = bytes.fromhex(plan.digest)
        async for event in analyst.watch(digest):
            last = event
        ended = replace(blank, study=plan.digest, micro_rho=last.spent_micro_rho, rounds=last.round)
        if last.state != pb.STUDY_STATE_RELEASED:
            return replace(ended, outcome=last.failure or f"the study was {state_word(last.state)}")
        seconds = time.perf_counter() - begin
        release = load_release(await analyst.release(digest))
    return _released(asking, replace(ended, seconds=seconds), release)


def _show(summary: str) -> None:
    errors.print(summary, markup=False, soft_wrap=True)


def _released(asking: Asking, row: Row, release: SignedRelease) -> Row:
    result, guarantee = release.result, release.document["guarantee"]
    sine = None
    if result.declined is None:
        asking.found[row.algorithm] = result.components
        sine = None if asking.truth is None else sin_angle(asking.truth, result.components)
    return replace(
        row,
        repeats=1,
        sin_angle=sine,
        sin_least=sine,
        sin_most=sine,
        predicted=result.predicted_sin_angle,
        epsilon=guarantee["epsilon"],
        delta=guarantee["delta"],
        rounds=len(release.document["rounds"]),
        outcome="" if result.declined is None else f"no release: {result.declined}",
    )


def beside(asking: Asking, rows: Sequence[Row]) -> list[Row]:
    """Rows with the sine of each release to that of the algorithm `auto` means, or else to the surest one."""
    wanted = choose(asking.study).value
    if wanted not in asking.found:
        known = [row for row in rows if row.algorithm in asking.found]
        stated = {row.algorithm: 1.0 if row.predicted is None else row.predicted for row in known}
        wanted = min(stated, key=stated.__getitem__, default="")
    if not wanted:
        return list(rows)
    goal = asking.found[wanted]
    return [
        replace(row, apart=sin_angle(goal, asking.found[row.algorithm]), beside=wanted)
        if row.algorithm in asking.found and row.algorithm != wanted
        else row
        for row in rows
    ]

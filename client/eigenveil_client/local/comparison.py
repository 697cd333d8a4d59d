"""Comparison of algorithms on a file or in the federation, its progress and its output. In the federation
each algorithm is one study; all are approved together, and each is watched to its end. Progress on standard
error is a bar on a terminal, otherwise one line for each algorithm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from eigenveil.accounting import formatting
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.choose import choose
from eigenveil.planning.predict import Prediction
from eigenveil.reporting.verify import SignedRelease, load_release
from eigenveil.study.study import Study
from eigenveil.study.toml import study_to_toml
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.display import state_name
from eigenveil_client.analyst.profile import load_profile, next_command
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.local.algorithm_selection import (
    AlgorithmSelection,
    cost_text,
    one_study,
    select_algorithms,
)
from eigenveil_client.local.algorithm_selection import load as load_own
from eigenveil_client.local.benchmark import Step, exact_components, make_benchmark, refusals, steps
from eigenveil_client.local.simulate import divide
from eigenveil_client.local.tables import TRUST, ComparisonRow, comparison_table, ordered, remarks
from eigenveil_client.records.isolated.reader import load
from eigenveil_common.command import console, errors, print_result
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def run_all(steps: Sequence[Step]) -> tuple[list[ComparisonRow], bool]:
    """Return the rows of all steps in order and True; on Ctrl-C the rows so far and False."""
    rows: list[ComparisonRow] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=len(steps))
        try:
            for number, (name, step) in enumerate(steps, 1):
                progress.update(task, description=name)
                if not errors.is_terminal:
                    errors.print(f"{number} of {len(steps)}: {name}", markup=False)
                rows.append(step())
                progress.advance(task)
        except KeyboardInterrupt:
            return rows, False
    return rows, True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedComparison:
    """Identity and study of a comparison, the exact components if known, and the released ones."""

    identity: StoredIdentity
    study: Study
    truth: FloatArray | None
    found: dict[str, FloatArray] = field(default_factory=dict)


def consent(study: Study, chosen: AlgorithmSelection, *, yes: bool, as_json: bool) -> None:
    """Print the total cost, and require the user's approval. Raises RequestError: no approval is possible
    with --json. click.Abort: not approved."""
    cost = cost_text(study, [one.algorithm for one in chosen.runnable])
    if yes:
        return
    if as_json:
        raise RequestError(Code.BAD_ARGUMENT, f"this would be {cost}; approve with --yes")
    click.confirm(f"This would be {cost}. Continue?", abort=True, err=True)


def run_study(comparison: FederatedComparison, prediction: Prediction) -> ComparisonRow:
    """Submit one study, watch it to its end and fetch its release. A refusal or an unreachable coordinator
    gives a row too, so that earlier results are not lost."""
    study = one_study(comparison.study, prediction.algorithm)
    empty_row = ComparisonRow(
        algorithm=prediction.algorithm.value,
        trusted=prediction.trusted,
        masked=study.masked,
        bytes_per_site=prediction.bytes_per_site,
        study=study.name,
    )
    try:
        return asyncio.run(_submit_and_watch(comparison, study, empty_row))
    except (RequestError, PeerError) as problem:
        return replace(empty_row, outcome=str(problem))
    except KeyboardInterrupt:
        listing = next_command(comparison.identity.folder, "study", "list")
        message = f"Stopped; if {study.name} was submitted, it goes on: {listing}"
        errors.print(message, markup=False, soft_wrap=True)
        raise


async def _submit_and_watch(
    comparison: FederatedComparison, study: Study, empty_row: ComparisonRow
) -> ComparisonRow:
    begin, last = time.perf_counter(), pb.StudyEvent()
    async with Analyst(comparison.identity) as analyst:
        submission = await analyst.submission_id(study)
        show_summary = partial(errors.print, markup=False, soft_wrap=True)
        plan, _ = await analyst.submit(study_to_toml(study), submission, notify=show_summary)
        digest = bytes.fromhex(plan.digest)
        async for event in analyst.watch(digest):
            last = event
        ended = replace(empty_row, study=plan.digest, micro_rho=last.spent_micro_rho, rounds=last.round)
        if last.state != pb.STUDY_STATE_RELEASED:
            return replace(ended, outcome=last.failure or f"the study was {state_name(last.state)}")
        seconds = time.perf_counter() - begin
        release = load_release(await analyst.release(digest))
    return _released_row(comparison, replace(ended, seconds=seconds), release)


def _released_row(of: FederatedComparison, row: ComparisonRow, release: SignedRelease) -> ComparisonRow:
    result, guarantee, sine = release.result, release.document["guarantee"], None
    if result.declined is None:
        of.found[row.algorithm] = result.components
        sine = None if of.truth is None else sin_angle(of.truth, result.components)
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


def add_reference_distances(
    comparison: FederatedComparison, rows: Sequence[ComparisonRow]
) -> list[ComparisonRow]:
    """Return rows with the sine of each release to a reference. The reference is the algorithm that `auto`
    chooses, or else the one with the least stated error."""
    reference_name = choose(comparison.study).value
    if reference_name not in comparison.found:
        known = [row for row in rows if row.algorithm in comparison.found]
        stated = {row.algorithm: 1.0 if row.predicted is None else row.predicted for row in known}
        reference_name = min(stated, key=stated.__getitem__, default="")
    if not reference_name:
        return list(rows)
    reference = comparison.found[reference_name]
    return [
        replace(row, distance=sin_angle(reference, comparison.found[row.algorithm]), reference=reference_name)
        if row.algorithm in comparison.found and row.algorithm != reference_name
        else row
        for row in rows
    ]


MEANING = (
    "error: sine of the largest angle to the records' exact components, 0 is exact, 1 is noise (median of "
    "repeats). matrix: relative Frobenius error of the covariance matrix. stated: the error that the release "
    "itself states. {apart}bytes: from each site. " + TRUST
)
APART_MEANING = "distance: sine to the release of the algorithm that `auto` chooses. "


def run_federated(
    study: Study, data: Path | None, algorithms: str | None, profile: Path | None, *, yes: bool, as_json: bool
) -> tuple[list[ComparisonRow], bool]:
    chosen = select_algorithms(study, algorithms, private=True)
    truth = None if data is None else exact_components(load(data, study), study)
    comparison = FederatedComparison(identity=load_profile(profile), study=study, truth=truth)
    consent(study, chosen, yes=yes, as_json=as_json)
    studies = [(one.algorithm.value, partial(run_study, comparison, one)) for one in chosen.runnable]
    rows, whole = run_all(studies)
    return [*add_reference_distances(comparison, rows), *refusals(chosen)], whole


def run_simulated(
    study: Study, data: Path, algorithms: str | None, custom_name: str | None, repeat: int, seed: int | None
) -> tuple[list[ComparisonRow], bool]:
    chosen = select_algorithms(study, algorithms, own=None if custom_name is None else load_own(custom_name))
    rows = load(data, study)
    one = make_benchmark(study, rows, divide(rows, study, "even"), repeat, seed)
    _warn_not_private(study, chosen)
    finished_rows, whole = run_all(steps(one, chosen))
    return [*finished_rows, *refusals(chosen)], whole


def _warn_not_private(study: Study, chosen: AlgorithmSelection) -> None:
    algorithms = [one.algorithm for one in chosen.runnable]
    own = "" if chosen.own is None else f" {chosen.own.name} is a custom algorithm, which no federation runs."
    text = "This looks at the records and compares with the exact answer: NOT PRIVATE, for you only. In a"
    cost = f"federation these would be {cost_text(study, algorithms)}.{own}"
    errors.print(f"{text} {cost}", style="yellow", markup=False)


def draw(path: Path, study: Study, rows: Sequence[ComparisonRow]) -> None:
    """Draw the rows that have an error, if any."""
    from eigenveil_client.local.tables import draw_comparison, rows_with_error

    if rows_with_error(rows):
        draw_comparison(path, rows, f"{study.name}, epsilon {formatting.shown(study.epsilon)}")
    else:
        errors.print("No picture: no algorithm has an error to draw.", style="yellow")


def show(study: Study, rows: Sequence[ComparisonRow], whole: bool, as_json: bool) -> None:
    if as_json:
        value = {"study": study.name, "complete": whole, "rows": [asdict(row) for row in ordered(rows)]}
        print_result(value, True, "")
        return
    console.print(comparison_table(rows))
    apart_meaning = "" if all(row.distance is None for row in rows) else APART_MEANING
    console.print(MEANING.format(apart=apart_meaning), style="dim", markup=False)
    for sentence in remarks(rows):
        console.print(sentence, style="dim", markup=False)
    if not whole:
        errors.print("Interrupted: only finished runs are shown.", style="yellow")

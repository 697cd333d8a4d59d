"""A comparison, on a file or in the federation, and its one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from eigenveil.accounting import digits
from eigenveil.study.study import Study
from eigenveil_client.analyst.profile import load_profile
from eigenveil_client.local.compare import federated
from eigenveil_client.local.compare.own import load as load_own
from eigenveil_client.local.compare.progress import run_all
from eigenveil_client.local.compare.rows import Row, ordered, remarks, table
from eigenveil_client.local.compare.selection import Wanted, cost_words, wanted
from eigenveil_client.local.compare.simulated import bench, refusals, steps
from eigenveil_client.local.exact_pca import exact
from eigenveil_client.local.format import TRUST
from eigenveil_client.local.simulate import divide
from eigenveil_client.records.apart.reader import load
from eigenveil_common.command import console, errors

MEANING = (
    "error: sine of the largest angle to the records' exact components, 0 is exact, 1 is noise (median of "
    "repeats). matrix: relative Frobenius error of the covariance matrix. stated: the error that the release "
    "itself states. {apart}bytes: from each site. " + TRUST
)
APART = "apart: sine to the release of the algorithm that `auto` means. "


def asked(
    study: Study, data: Path | None, algorithms: str | None, profile: Path | None, *, yes: bool, as_json: bool
) -> tuple[list[Row], bool]:
    chosen = wanted(study, algorithms, private=True)
    truth = None if data is None else exact(load(data, study), study)
    asking = federated.Asking(identity=load_profile(profile), study=study, truth=truth)
    federated.consent(study, chosen, yes=yes, as_json=as_json)
    rows, whole = run_all(federated.steps(asking, chosen))
    return [*federated.beside(asking, rows), *refusals(chosen)], whole


def simulated(
    study: Study, data: Path, algorithms: str | None, own: str | None, repeat: int, seed: int | None
) -> tuple[list[Row], bool]:
    chosen = wanted(study, algorithms, own=None if own is None else load_own(own))
    rows = load(data, study)
    one = bench(study, rows, divide(rows, study, "even"), repeat, seed)
    _warn(study, chosen)
    done, whole = run_all(steps(one, chosen))
    return [*done, *refusals(chosen)], whole


def _warn(study: Study, chosen: Wanted) -> None:
    algorithms = [one.algorithm for one in chosen.able]
    own = "" if chosen.own is None else f" {chosen.own.name} is your own, and no federation runs it."
    errors.print(
        "This looks at the records and compares with the exact answer: NOT PRIVATE, for you only. In a "
        f"federation these would be {cost_words(study, algorithms)}.{own}",
        style="yellow",
        markup=False,
    )


def draw(path: Path, study: Study, rows: Sequence[Row]) -> None:
    """The rows that have an error; nothing where none has.

    Raises:
        InternalError: code `storage`, it cannot be written.
    """
    from eigenveil_client.local.compare.picture import picture, shown  # drawing takes a second to import

    if shown(rows):
        picture(path, rows, f"{study.name}, epsilon {digits.shown(study.epsilon)}")
    else:
        errors.print("No algorithm gave an error to draw: there is no picture.", style="yellow")


def show(study: Study, rows: Sequence[Row], whole: bool, as_json: bool) -> None:
    if as_json:
        value = {
            "study": study.name,
            "complete": whole,
            "rows": [asdict(row) for row in ordered(rows)],
        }
        click.echo(json.dumps(value, sort_keys=True))
        return
    console.print(table(rows))
    apart = "" if all(row.apart is None for row in rows) else APART
    console.print(MEANING.format(apart=apart), style="dim", markup=False)
    for sentence in remarks(rows):
        console.print(sentence, style="dim", markup=False)
    if not whole:
        errors.print("Interrupted: what had ended is shown.", style="yellow")

"""`eigenveil compare`: every algorithm that fits a study, side by side, on a file or in the federation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.profile import json_option, load_profile, profile_option
from eigenveil_client.analyst.study_text import study_text
from eigenveil_client.local.compare import federated
from eigenveil_client.local.compare.own import load as load_own
from eigenveil_client.local.compare.progress import run_all
from eigenveil_client.local.compare.rows import Row, as_csv, ordered, remarks, table
from eigenveil_client.local.compare.selection import Wanted, cost_words, wanted
from eigenveil_client.local.compare.simulated import bench, refusals, steps
from eigenveil_client.local.exact_pca import exact
from eigenveil_client.local.simulate import divide, with_sites
from eigenveil_client.records.records import load
from eigenveil_common.command import FILE, console, errors
from eigenveil_common.files import check_output, write_durably
from eigenveil_common.start import INTERRUPTED

MEANING = (
    "error: sine of the largest angle to the records' exact components, 0 is exact, 1 is noise (median of "
    "repeats). matrix: relative Frobenius error of the covariance matrix. stated: the error that the release "
    "itself states. apart: sine to the release of the algorithm that `auto` means. bytes: from each site. "
    "trust: whether the coordinator works on sums only, or must be trusted with exact ones."
)


@click.command()
@click.argument("file", metavar="STUDY.toml", type=FILE)
@click.option("--data", type=FILE, help="Records: CSV or Parquet.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", type=click.IntRange(0), help="Reproducible noise.")
@click.option("--sites", type=click.IntRange(1, 1000), help="How many sites [default: as the study says].")
@click.option("--algorithms", metavar="A,B,...", help="Only these [default: all that apply].")
@click.option("--with", "own", metavar="FILE.py[:NAME]", help="And an algorithm of your own, from this file.")
@click.option("--out", type=FILE, help="Write it as CSV as well.")
@click.option("--federation", is_flag=True, help="Run them at your coordinator: it spends.")
@click.option("--yes", is_flag=True, help="With --federation: do not ask before spending.")
@profile_option
@json_option
def compare(
    file: Path,
    data: Path | None,
    repeat: int,
    seed: int | None,
    sites: int | None,
    algorithms: str | None,
    own: str | None,
    out: Path | None,
    federation: bool,
    yes: bool,
    profile: Path | None,
    as_json: bool,
) -> int:
    """Run STUDY.toml with every algorithm that applies, and print one table, the least error first.

    With --data the runs are simulations on the records in that file, measured against the exact answer: not
    private, for you only. With --federation each algorithm is a study of its own at your coordinator.
    An algorithm of your own (--with) runs in simulations only, because no code travels.
    """
    study = parse_study(study_text(file))
    if out is not None:
        check_output(out, file, *([] if data is None else [data]))
    if federation:
        if own is not None:
            raise RequestError(
                Code.BAD_ARGUMENT, "--with is for simulations: no code travels; leave out --federation"
            )
        if sites is not None or seed is not None or repeat > 1:
            raise RequestError(
                Code.BAD_ARGUMENT, "--sites, --seed and --repeat are for simulations: leave out --federation"
            )
        rows, whole = _asked(study, data, algorithms, profile, yes=yes, as_json=as_json)
    else:
        if data is None:
            raise RequestError(Code.BAD_ARGUMENT, "give --data FILE, or --federation to ask the sites")
        rows, whole = _simulated(with_sites(study, sites), data, algorithms, own, repeat, seed)
    if out is not None:
        write_durably(out, as_csv(rows).encode())
    _say(study, rows, whole, as_json)
    return 0 if whole else INTERRUPTED


def _asked(
    study: Study, data: Path | None, algorithms: str | None, profile: Path | None, *, yes: bool, as_json: bool
) -> tuple[list[Row], bool]:
    chosen = wanted(study, algorithms, private=True)
    truth = None if data is None else exact(load(data, study), study)
    asking = federated.Asking(identity=load_profile(profile), study=study, truth=truth)
    federated.consent(study, chosen, yes=yes, as_json=as_json)
    rows, whole = run_all(federated.steps(asking, chosen))
    return [*federated.beside(asking, rows), *refusals(chosen)], whole


def _simulated(
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


def _say(study: Study, rows: Sequence[Row], whole: bool, as_json: bool) -> None:
    if as_json:
        value = {
            "study": study.name,
            "complete": whole,
            "rows": [asdict(row) for row in ordered(rows)],
        }
        click.echo(json.dumps(value, sort_keys=True))
        return
    console.print(table(rows))
    console.print(MEANING, style="dim", markup=False)
    for sentence in remarks(rows):
        console.print(sentence, style="dim", markup=False)
    if not whole:
        errors.print("Interrupted: what had ended is shown.", style="yellow")

"""`eigenveil plan` and `eigenveil simulate`: what needs no federation."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_client.analyst.options import json_option
from eigenveil_common.command import FILE, FILE_OR_FOLDER, say, tell
from eigenveil_common.files import check_output, make_folder


@click.command()
@click.argument("study", metavar="STUDY.toml", type=FILE)
@click.option(
    "--sample",
    type=FILE_OR_FOLDER,
    help="Records that are public and resemble the sites': errors are predicted for those.",
)
@click.option("--spectrum", metavar="LIST", help="Assumed variances, largest first, such as 5,2,1,1.")
@json_option
def plan(study: Path, sample: Path | None, spectrum: str | None, as_json: bool) -> None:
    """Predict each algorithm's error, rounds, bytes and time for STUDY.toml, and recommend one.

    Nothing is asked of anybody and nothing is charged. Without --sample or --spectrum a spectrum is assumed.
    """
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.study_text import study_text
    from eigenveil_client.local.plan import read_guess, show, value

    wanted = parse_study(study_text(study))
    tell(value(wanted, read_guess(wanted, sample, spectrum)), as_json, show)


@click.command()
@click.argument("study", metavar="STUDY.toml", type=FILE)
@click.option("--data", required=True, type=FILE_OR_FOLDER, help="Records: CSV, Parquet, Excel.")
@click.option("--sites", type=click.IntRange(1, 1000), help="How many sites [default: as the study says].")
@click.option("--split", default="even", show_default=True, help="even, uneven, or weights such as 5,3,2.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--truth", is_flag=True, help="Compare with the exact answer (not private: for you only).")
@click.option("--seed", type=click.IntRange(0), help="Reproducible noise; the result says it is not private.")
@click.option(
    "--drop-out", "drop_outs", multiple=True, metavar="ROUND:SITE", help="SITE misses ROUND (from 1)."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the last run's results."
)
@json_option
def simulate(
    study: Path,
    data: Path,
    sites: int | None,
    split: str,
    repeat: int,
    truth: bool,
    seed: int | None,
    drop_outs: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> None:
    """Run STUDY.toml on the records in one file, with the session and the noise of a real federation.

    A result drawn without --seed and without --truth carries the study's guarantee, once for every repeat.
    Which imagined site a record is at depends on that record alone.
    """
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.study_text import study_text
    from eigenveil_client.local.exact_pca import exact
    from eigenveil_client.local.simulate import (
        divide,
        parse_drop_outs,
        repeat_study,
        summary,
        text,
        with_sites,
        write_simulation,
    )
    from eigenveil_client.records.records import load

    wanted = with_sites(parse_study(study_text(study)), sites)
    if out is not None:
        make_folder(out)
        check_output(out / "simulation.json", study, data)
    rows = load(data, wanted)
    parts = divide(rows, wanted, split)
    gone = parse_drop_outs(drop_outs, wanted)
    goal = exact(rows, wanted) if truth else None
    runs = repeat_study(wanted, parts, repeat, seed, gone, goal)
    told = summary(runs)
    if out is not None:
        told |= write_simulation(runs, out)
    say(told, as_json, text(runs, told))


COMMANDS = (plan, simulate)

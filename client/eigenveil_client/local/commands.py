"""`eigenveil example`, `eigenveil plan` and `eigenveil simulate`: what needs no federation."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from eigenveil_client.analyst.options import json_option
from eigenveil_client.local.epsilons import epsilon_option
from eigenveil_client.local.pictures import check_picture, plot_option
from eigenveil_common.command import FILE, FILE_OR_FOLDER, say, tell, typed
from eigenveil_common.files import check_new, check_output, make_folder, write_durably


@click.command()
@click.argument("study", metavar="STUDY.toml", type=FILE)
@click.option(
    "--sample",
    type=FILE_OR_FOLDER,
    help="Records that are public and resemble the sites': errors are predicted for those.",
)
@click.option("--spectrum", metavar="LIST", help="Assumed variances, largest first, such as 5,2,1,1.")
@epsilon_option
@plot_option
@json_option
def plan(
    study: Path,
    sample: Path | None,
    spectrum: str | None,
    epsilons: tuple[float, ...] | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Predict each algorithm's error, rounds, bytes and time for STUDY.toml, and recommend one.

    Nothing is asked of anybody and nothing is charged. Without --sample or --spectrum a spectrum is assumed.
    --plot draws the error against epsilon, for those of --epsilon or a few around the study's own.
    """
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.dictionaries import study_of, tell_overrides
    from eigenveil_client.local.plan import read_guess, show, swept, value

    check_picture(plot, study, *([] if sample is None else [sample]))
    resolved = study_of(study)
    wanted = parse_study(resolved.text)
    tell_overrides(resolved)
    guess = read_guess(wanted, sample, spectrum)
    told = value(wanted, guess) | {"overrides": list(resolved.overrides)}
    tell(told | swept(wanted, guess, epsilons, plot), as_json, show)


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
    "--trust",
    type=click.Choice(["central", "secure-aggregation"]),
    help="Who may see exact sums [default: as the study says].",
)
@click.option(
    "--colluding",
    type=click.IntRange(1),
    help="How many sites may help the coordinator against the others [default: as the study says].",
)
@click.option(
    "--attempts",
    type=click.IntRange(1, 8),
    help="How often a round may be tried that loses a site [default: as the study says].",
)
@click.option(
    "--lost",
    multiple=True,
    metavar="ROUND[.ATTEMPT]:SITE",
    help="SITE is lost in an attempt (the first) at ROUND, after its set of sites was fixed.",
)
@click.option(
    "--colluder", "colluders", multiple=True, metavar="SITE", help="SITE colludes: show what can be computed."
)
@click.option(
    "--cluster",
    type=FILE,
    help="Have a Dask cluster hold the sites: TOML with scheduler, scheduler_ca, _cert and _key.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the last run's results."
)
@plot_option
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
    trust: str | None,
    colluding: int | None,
    attempts: int | None,
    lost: tuple[str, ...],
    colluders: tuple[str, ...],
    cluster: Path | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run STUDY.toml on the records in one file, with the session and the noise of a real federation.

    A result drawn without --seed and without --truth carries the study's guarantee, once for every repeat.
    Which imagined site a record is at depends on that record alone. Under secure aggregation sites draw the
    noise and mask their answers as in a federation, but with keys that everybody could know.
    """
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.dictionaries import study_of, tell_overrides
    from eigenveil_client.connection.cluster import ClusterAddress
    from eigenveil_client.local import simulate as simulated
    from eigenveil_client.local.exact_pca import exact
    from eigenveil_client.local.on_cluster import on_cluster
    from eigenveil_client.records.apart.reader import load
    from eigenveil_common import config

    check_picture(plot, study, data)
    resolved = study_of(study)
    tell_overrides(resolved)
    wanted = simulated.with_sites(
        parse_study(resolved.text), sites, **simulated.trusting(trust, colluding, attempts)
    )
    if out is not None:
        make_folder(out)
        check_output(out / "simulation.json", study, data)
    rows = load(data, wanted)
    parts = simulated.divide(rows, wanted, split)
    troubles = simulated.Troubles(
        drop_outs=simulated.parse_drop_outs(drop_outs, wanted),
        lost=simulated.parse_lost(lost, wanted),
        colluding=colluders,
    )
    goal = exact(rows, wanted) if truth else None
    with nullcontext() if cluster is None else on_cluster(config.load(cluster, ClusterAddress)) as hold:
        runs = simulated.repeat_study(wanted, parts, repeat, seed, troubles, goal, hold)
    told = simulated.summary(runs)
    if out is not None:
        told |= simulated.write_simulation(runs, out)
    if plot is not None:
        told |= simulated.draw_last(runs, plot)
    say(told, as_json, simulated.text(runs, told))


@click.command("example")
@click.option(
    "--out", default=Path("example"), show_default=True, type=click.Path(path_type=Path, file_okay=False)
)
@json_option
def write_example(out: Path, as_json: bool) -> None:
    """Write a study and its records, which are public, into a folder: a start for `plan` and `simulate`."""
    from importlib.resources import files

    packaged = files("eigenveil_client") / "studies"
    study, records = out / "study.toml", out / "records.csv"
    make_folder(out)
    for path in (study, records):
        check_new(path)
        write_durably(path, packaged.joinpath(f"breast-cancer{path.suffix}").read_bytes())
    say(
        {"study": str(study), "records": str(records)},
        as_json,
        f"wrote {study} and {records}: 569 public records of 30 measurements\n"
        f"next: {typed('eigenveil', 'plan', study)}\n"
        f"then: {typed('eigenveil', 'simulate', study, '--data', records, '--truth')}",
    )


COMMANDS = (write_example, plan, simulate)

"""`eigenveil example`, `eigenveil plan` and `eigenveil simulate`, which need no federation. `eigenveil
compare`: all algorithms that apply to a study, on a file or in the federation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from eigenveil.errors import Code, RequestError
from eigenveil_client.analyst.options import json_option, profile_option
from eigenveil_client.local.options import check_picture, epsilon_option, plot_option
from eigenveil_common.command import (
    FILE,
    FILE_OR_FOLDER,
    FOLDER,
    console,
    print_result,
    print_result_as,
    shell_command,
)
from eigenveil_common.files import check_new, check_output, make_folder, write_durably
from eigenveil_common.start import INTERRUPTED


@click.command()
@click.argument("study", metavar="STUDY.toml", type=FILE)
@click.option(
    "--sample",
    type=FILE_OR_FOLDER,
    help="Public records that resemble the sites': errors are predicted for them.",
)
@click.option("--spectrum", metavar="LIST", help="Assumed variances, largest first, such as 5,2,1,1.")
@epsilon_option
@plot_option
@click.option("--sites", "with_sites", is_flag=True, help="Ask the coordinator which sites are ready for it.")
@profile_option
@json_option
def plan(
    study: Path,
    sample: Path | None,
    spectrum: str | None,
    epsilons: tuple[float, ...] | None,
    plot: Path | None,
    with_sites: bool,
    profile: Path | None,
    as_json: bool,
) -> None:
    """Predict each algorithm's error, rounds, bytes and time for STUDY.toml, and recommend one.

    No site is contacted and nothing is charged. Without --sample or --spectrum a spectrum is assumed. --sites
    shows which sites are ready for the study, by the columns and settings that they state, or why not.
    --plot draws the error against epsilon, for those of --epsilon or a few around the study's own."""
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.federation import print_overrides, read_study
    from eigenveil_client.local.plan import plan_values, predict_sweep, print_plan, read_assumed_spectrum

    check_picture(plot, study, *([] if sample is None else [sample]))
    if with_sites:
        from eigenveil_client.analyst.studies import site_readiness

        resolved, sites = site_readiness(study, profile)
    else:
        resolved, sites = read_study(study, profile), None
        print_overrides(resolved)
    parsed_study = parse_study(resolved.text)
    assumed_spectrum = read_assumed_spectrum(parsed_study, sample, spectrum)
    result = plan_values(parsed_study, assumed_spectrum, resolved.spreads)
    result |= {"overrides": list(resolved.overrides)}
    result |= predict_sweep(parsed_study, assumed_spectrum, epsilons, plot)
    if sites is None:
        print_result_as(result, as_json, print_plan)
        return
    from eigenveil_client.analyst.catalogue import readiness_value
    from eigenveil_client.analyst.python.connect import readiness_table

    print_result_as(result | readiness_value(sites), as_json, print_plan)
    if not as_json:
        console.print(readiness_table(sites))


@click.command()
@click.argument("study", metavar="STUDY.toml", type=FILE)
@click.option("--data", required=True, type=FILE_OR_FOLDER, help="Records: CSV, Parquet, Excel.")
@click.option("--sites", type=click.IntRange(1, 1000), help="How many sites [default: as the study says].")
@click.option("--split", default="even", show_default=True, help="even, uneven, or weights such as 5,3,2.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--truth", is_flag=True, help="Compare with the exact answer (not private; do not share).")
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
    "--spare-attempts",
    type=click.IntRange(0, 7),
    help="Attempts whose cost is set aside for rounds that lose a site [default: as the study says].",
)
@click.option(
    "--lost",
    multiple=True,
    metavar="ROUND[.ATTEMPT]:SITE",
    help="SITE fails in an attempt (the first) at ROUND, after its set of sites was fixed.",
)
@click.option(
    "--colluder", "colluders", multiple=True, metavar="SITE", help="SITE colludes: show what it can compute."
)
@click.option(
    "--cluster",
    type=FILE,
    help="Run the sites on a Dask cluster: TOML with scheduler, scheduler_ca, _cert and _key.",
)
@click.option("--out", type=FOLDER, help="Folder for the last run's results.")
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
    spare_attempts: int | None,
    lost: tuple[str, ...],
    colluders: tuple[str, ...],
    cluster: Path | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run STUDY.toml on the records in one file, with the session and the noise of a real federation.

    A result without --seed and without --truth has the study's guarantee, once for every repeat. The
    simulated site of a record depends on that record alone. Under secure aggregation sites draw the noise
    and mask their answers as in a federation, but their keys are not secret."""
    from eigenveil.simulation import simulate as simulate_study
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.federation import print_overrides, read_study
    from eigenveil_client.connection.cluster import ClusterAddress
    from eigenveil_client.local import simulate as simulated
    from eigenveil_client.local.benchmark import exact_components
    from eigenveil_client.records.isolated.reader import load
    from eigenveil_common import config

    check_picture(plot, study, data)
    resolved = read_study(study)
    print_overrides(resolved)
    parsed_study = simulated.with_sites(
        parse_study(resolved.text), sites, **simulated.privacy_overrides(trust, colluding, spare_attempts)
    )
    if out is not None:
        make_folder(out)
        check_output(out / simulated.SIMULATION_FILE, study, data)
    rows = load(data, parsed_study)
    run = partial(
        simulate_study, parsed_study, simulated.divide(rows, parsed_study, split),
        drop_outs=simulated.parse_drop_outs(drop_outs, parsed_study),
        lost=simulated.parse_lost(lost, parsed_study), colluding=colluders,
    )  # fmt: skip
    exact = exact_components(rows, parsed_study) if truth else None
    address = None if cluster is None else config.load(cluster, ClusterAddress)
    with simulated.on_cluster(address) as sum_factory:
        runs = simulated.repeat_study(partial(run, sum_factory=sum_factory), repeat, seed, exact)
    result = simulated.runs_summary(runs)
    if out is not None:
        result |= simulated.write_simulation(runs, out)
    if plot is not None:
        result |= simulated.draw_last(runs, plot)
    print_result(result, as_json, simulated.runs_text(runs, result))


@click.command("example")
@click.option("--out", default=Path("example"), show_default=True, type=FOLDER)
@json_option
def write_example(out: Path, as_json: bool) -> None:
    """Write an example study with public records into a folder, for `plan` and `simulate`."""
    from importlib.resources import files

    packaged = files("eigenveil_client") / "studies"
    study, records = out / "study.toml", out / "records.csv"
    make_folder(out)
    for path in (study, records):
        check_new(path)
        write_durably(path, packaged.joinpath(f"breast-cancer{path.suffix}").read_bytes())
    print_result(
        {"study": str(study), "records": str(records)},
        as_json,
        f"wrote {study} and {records}: 569 public records of 30 measurements\n"
        f"next: {shell_command('eigenveil', 'plan', study)}\n"
        f"then: {shell_command('eigenveil', 'simulate', study, '--data', records, '--truth')}",
    )


COMMANDS = (write_example, plan, simulate)


@click.command()
@click.argument("file", metavar="STUDY.toml", type=FILE)
@click.option("--data", type=FILE_OR_FOLDER, help="Records: CSV, Parquet, Excel.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", type=click.IntRange(0), help="Reproducible noise.")
@click.option("--sites", type=click.IntRange(1, 1000), help="How many sites [default: as the study says].")
@click.option("--algorithms", metavar="A,B,...", help="Only these [default: all that apply].")
@click.option("--with", "own", metavar="FILE.py[:NAME]", help="Also a custom algorithm from this file.")
@click.option("--out", type=FILE, help="Also write the table as CSV.")
@plot_option
@click.option("--federation", is_flag=True, help="Run them at your coordinator, which spends budget.")
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
    plot: Path | None,
    federation: bool,
    yes: bool,
    profile: Path | None,
    as_json: bool,
) -> int:
    """Run STUDY.toml with every algorithm that applies, and print one table, the least error first.

    With --data the runs are simulations on the records in that file, compared with the exact answer: not
    private, do not share. With --federation each algorithm is a separate study at your coordinator.
    A custom algorithm (--with) runs in simulations only, because sites run no foreign code."""
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.federation import print_overrides, read_own_study
    from eigenveil_client.local import comparison
    from eigenveil_client.local.simulate import with_sites
    from eigenveil_client.local.tables import as_csv

    inputs = [file] if data is None else [file, data]
    check_picture(plot, *inputs)
    resolved = read_own_study(file, profile)
    print_overrides(resolved)
    study = parse_study(resolved.text)
    if out is not None:
        check_output(out, *inputs)
    if federation:
        if own is not None:
            raise RequestError(Code.BAD_ARGUMENT, "--with is for simulations only; leave out --federation")
        if sites is not None or seed is not None or repeat > 1:
            why = "--sites, --seed and --repeat are for simulations: leave out --federation"
            raise RequestError(Code.BAD_ARGUMENT, why)
        rows, whole = comparison.run_federated(study, data, algorithms, profile, yes=yes, as_json=as_json)
    else:
        if data is None:
            raise RequestError(Code.BAD_ARGUMENT, "give --data FILE, or --federation to run at the sites")
        rows, whole = comparison.run_simulated(with_sites(study, sites), data, algorithms, own, repeat, seed)
    if out is not None:
        write_durably(out, as_csv(rows).encode())
    if plot is not None:
        comparison.draw(plot, study, rows)
    comparison.show(study, rows, whole, as_json)
    return 0 if whole else INTERRUPTED

"""`eigenveil example`, `plan`, `simulate` and `compare`, which need no federation."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_client.analyst.options import json_option
from eigenveil_client.local.options import epsilon_option
from eigenveil_common.command import (
    FILE,
    FILE_OR_FOLDER,
    FOLDER,
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
@json_option
def plan(
    study: Path,
    sample: Path | None,
    spectrum: str | None,
    epsilons: tuple[float, ...] | None,
    as_json: bool,
) -> None:
    """Predict each algorithm's error, rounds, bytes and time for STUDY.toml, and recommend one.

    No site is contacted and nothing is charged. Without --sample or --spectrum a spectrum is assumed.
    """
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.federation import print_overrides, read_study
    from eigenveil_client.local.plan import plan_values, predict_sweep, print_plan, read_assumed_spectrum

    resolved = read_study(study)
    parsed_study = parse_study(resolved.text)
    print_overrides(resolved)
    assumed_spectrum = read_assumed_spectrum(parsed_study, sample, spectrum)
    result = plan_values(parsed_study, assumed_spectrum) | {"overrides": list(resolved.overrides)}
    if epsilons is not None:
        result |= predict_sweep(parsed_study, assumed_spectrum, epsilons)
    print_result_as(result, as_json, print_plan)


@click.command()
@click.argument("study", metavar="STUDY.toml", type=FILE)
@click.option("--data", required=True, type=FILE_OR_FOLDER, help="Records: CSV, Parquet, Excel.")
@click.option("--sites", type=click.IntRange(1, 1000), help="How many sites [default: as the study says].")
@click.option("--split", default="even", show_default=True, help="even, uneven, or weights such as 5,3,2.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--truth", is_flag=True, help="Compare with the exact answer (not private; do not share).")
@click.option("--seed", type=click.IntRange(0), help="Reproducible noise; the result says it is not private.")
@click.option("--out", type=FOLDER, help="Folder for the last run's results.")
@json_option
def simulate(
    study: Path,
    data: Path,
    sites: int | None,
    split: str,
    repeat: int,
    truth: bool,
    seed: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run STUDY.toml on the records in one file, with the session and the noise of a real federation.

    A result without --seed and without --truth has the study's guarantee, once for every repeat. The
    simulated site of a record depends on that record alone. Under secure aggregation sites draw the noise
    and mask their answers as in a federation, but their keys are not secret.
    """
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.federation import print_overrides, read_study
    from eigenveil_client.local import simulate as simulated
    from eigenveil_client.local.benchmark import exact_components
    from eigenveil_client.records.isolated.reader import load

    resolved = read_study(study)
    print_overrides(resolved)
    parsed_study = simulated.with_sites(parse_study(resolved.text), sites)
    if out is not None:
        make_folder(out)
        check_output(out / "simulation.json", study, data)
    rows = load(data, parsed_study)
    exact = exact_components(rows, parsed_study) if truth else None
    parts = simulated.divide(rows, parsed_study, split)
    runs = simulated.repeat_study(parsed_study, parts, repeat, seed, exact)
    result = simulated.runs_summary(runs)
    if out is not None:
        result |= simulated.write_simulation(runs, out)
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
@click.option("--data", required=True, type=FILE_OR_FOLDER, help="Records: CSV, Parquet, Excel.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", type=click.IntRange(0), help="Reproducible noise.")
@click.option("--sites", type=click.IntRange(1, 1000), help="How many sites [default: as the study says].")
@click.option("--algorithms", metavar="A,B,...", help="Only these [default: all that apply].")
@click.option("--with", "own", metavar="FILE.py[:NAME]", help="Also a custom algorithm from this file.")
@click.option("--out", type=FILE, help="Also write the table as CSV.")
@json_option
def compare(
    file: Path,
    data: Path,
    repeat: int,
    seed: int | None,
    sites: int | None,
    algorithms: str | None,
    own: str | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Run STUDY.toml with every algorithm that applies, and print one table, the least error first.

    The runs are simulations on the records in that file, compared with the exact answer: not private, do not
    share. A custom algorithm (--with) runs in simulations only, because sites run no foreign code.
    """
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.federation import print_overrides, read_study
    from eigenveil_client.local import comparison
    from eigenveil_client.local.simulate import with_sites
    from eigenveil_client.local.tables import as_csv

    resolved = read_study(file)
    print_overrides(resolved)
    study = parse_study(resolved.text)
    if out is not None:
        check_output(out, file, data)
    rows, whole = comparison.run_simulated(with_sites(study, sites), data, algorithms, own, repeat, seed)
    if out is not None:
        write_durably(out, as_csv(rows).encode())
    comparison.show(study, rows, whole, as_json)
    return 0 if whole else INTERRUPTED

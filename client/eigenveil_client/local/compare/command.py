"""`eigenveil compare`: every algorithm that fits a study, side by side, on a file or in the federation."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil.errors import Code, RequestError
from eigenveil_client.analyst.options import json_option, profile_option
from eigenveil_client.local.pictures import check_picture, plot_option
from eigenveil_common.command import FILE, FILE_OR_FOLDER
from eigenveil_common.files import check_output, write_durably
from eigenveil_common.start import INTERRUPTED


@click.command()
@click.argument("file", metavar="STUDY.toml", type=FILE)
@click.option("--data", type=FILE_OR_FOLDER, help="Records: CSV, Parquet, Excel.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", type=click.IntRange(0), help="Reproducible noise.")
@click.option("--sites", type=click.IntRange(1, 1000), help="How many sites [default: as the study says].")
@click.option("--algorithms", metavar="A,B,...", help="Only these [default: all that apply].")
@click.option("--with", "own", metavar="FILE.py[:NAME]", help="And an algorithm of your own, from this file.")
@click.option("--out", type=FILE, help="Write it as CSV as well.")
@plot_option
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
    plot: Path | None,
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
    from eigenveil.study.toml import parse_study
    from eigenveil_client.analyst.dictionaries import study_of, tell_overrides
    from eigenveil_client.local.compare import run
    from eigenveil_client.local.compare.rows import as_csv
    from eigenveil_client.local.simulate import with_sites

    check_picture(plot, file, *([] if data is None else [data]))
    resolved = study_of(file, profile)
    tell_overrides(resolved)
    study = parse_study(resolved.text)
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
        rows, whole = run.asked(study, data, algorithms, profile, yes=yes, as_json=as_json)
    else:
        if data is None:
            raise RequestError(Code.BAD_ARGUMENT, "give --data FILE, or --federation to ask the sites")
        rows, whole = run.simulated(with_sites(study, sites), data, algorithms, own, repeat, seed)
    if out is not None:
        write_durably(out, as_csv(rows).encode())
    if plot is not None:
        run.draw(plot, study, rows)
    run.show(study, rows, whole, as_json)
    return 0 if whole else INTERRUPTED

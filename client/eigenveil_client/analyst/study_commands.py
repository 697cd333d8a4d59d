"""`eigenveil study`: new, resolve, submit, list, watch, show, explain, result, log, cancel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from eigenveil_client.analyst.options import at_profile, dictionary_option
from eigenveil_common.command import console, errors, say
from eigenveil_common.examples import example
from eigenveil_common.files import check_new, check_output, write_durably
from eigenveil_common.start import INTERRUPTED

study_argument = click.argument("wanted", metavar="STUDY")
file_argument = click.argument("file", metavar="STUDY.toml", type=click.Path(path_type=Path, dir_okay=False))
out_option = click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path(),
    help="Folder for release.json and report.html [default: here].",
)  # fmt: skip


@click.group()
def study() -> None:
    """Studies at the coordinator you are enrolled with.

    STUDY is a study's digest, at least 6 characters of its beginning, or its name when that is unique.
    """


@study.command("example")
@click.argument("file", type=click.Choice(["study", "profile"]), default="study")
def show_example(file: str) -> None:
    """Print a study's TOML, or a profile.toml, with every key and its meaning."""
    click.echo(example(file), nl=False)


@study.command()
@file_argument
@click.option(
    "--submission",
    help="Submit under this id: the same id twice is one study [default: the id under which you signed this "
    "very study, if the coordinator lists none such; else random].",
)
@click.option(
    "--expires-days", default=7, show_default=True, type=click.IntRange(1, 31),
    help="For how long your signature is good: sites answer nothing afterwards.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Sign what is shown; do not ask.")
@click.option("--again", is_flag=True, help="Spend anew on a study that was submitted before; ask nobody.")
@click.option("--wait", is_flag=True, help="Watch it to its end, then write the release and the report.")
@out_option
@at_profile
def submit(
    file: Path,
    submission: str | None,
    expires_days: int,
    yes: bool,
    again: bool,
    wait: bool,
    out: Path,
    profile: Path | None,
    as_json: bool,
) -> int:
    """Sign STUDY.toml with your own key, and submit it. A lost connection is retried: the study starts once.

    The coordinator plans it first, and a plan that is not your study is not signed. What you sign is shown:
    every value of the study, each column with its bounds, the algorithm that auto chose, and the id. You are
    asked; with --json or without a terminal nobody is: add --yes. A file from the coordinator's pages is its
    word, so read it.

    The same study under another id would spend its price once more: you are asked first, or with --json or
    without a terminal refused (exit code 9) unless --again is there.
    """
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.profile import follow
    from eigenveil_client.analyst.python.connected import ConnectedFederation
    from eigenveil_client.analyst.releases.verify import check_folder
    from eigenveil_client.analyst.study_text import asked_text

    with ConnectedFederation(profile) as federation:
        wanted = studies.whole_study(federation, file)
        chosen = submission or wanted.submission_id(again=again)
        if wait:
            check_folder(out, lambda held: bool(held["plan"]["submission"] == chosen))
        studies.check_asked(yes=yes, as_json=as_json)  # what is wrong with the study itself is said first
        if not again:
            studies.ask_before_repeating(wanted, chosen, profile, as_json)
        signing: list[str] = []
        run = wanted.submit(
            again=True,
            submission=chosen,
            expires_days=expires_days,
            tell=studies.signature_prompt(signing, yes=yes),
        )
        for sentence in run.warnings:
            errors.print(f"warning: {sentence}", style="yellow", markup=False)
        value: dict[str, Any] = {"study": run.digest, "name": run.name}
        value |= {"submission": chosen, "signed": signing[0], "warnings": run.warnings}
        value |= {"overrides": wanted.whole.overrides, "asked": wanted.asked}
        if not wait:
            watching = follow(profile, "study", "watch", run.short)
            told = f"Submitted {run.name} as {run.short}. {asked_text(wanted.asked, run.status.state)}"
            say(value, as_json, f"{told}\nFollow it with: {watching}")
            return 0
        if not as_json:
            console.print(asked_text(wanted.asked, run.status.state), markup=False, soft_wrap=True)
        if not studies.watch(run, profile, quiet=as_json):
            return INTERRUPTED
        studies.fetch(run, out, profile, as_json)
        return 0


@study.command()
@click.option("--columns", default="", metavar="LIST", help="Names, after commas; see `eigenveil columns`.")
@click.option(
    "--from-genotypes", "variants", metavar="FILE", type=click.Path(path_type=Path),
    help="In place of --columns: all variants of a .bim or .zarr.",
)  # fmt: skip
@click.option("--sites", metavar="LIST", help="Names, after commas [default: all that do not lack a column].")
@click.option("--components", default=2, show_default=True, type=click.IntRange(1))
@click.option("--epsilon", default=1.0, show_default=True)
@click.option("--delta", default=1e-6, show_default=True)
@click.option("--person-column", help="What the sites call it, where one person may have several rows.")
@click.option("--name", help="The study's name [default: as its file].")
@click.option("--purpose", default="", help="What for, in a sentence: those who must consent read it.")
@dictionary_option
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("study.toml"), show_default=True
)
@at_profile
def new(out: Path, profile: Path | None, as_json: bool, variants: Path | None, **choice: Any) -> None:
    """Write a study file from a choice of columns: units and bounds are the dictionary's.

    With --from-genotypes a column counts one allele of a variant. Variants that read alike on both strands
    (A/T, C/G) are left out, and those with one allele.
    """
    from eigenveil_client.analyst.catalogue import write_new_study
    from eigenveil_client.analyst.genotype_study import write_genotype_study
    from eigenveil_client.analyst.profile import follow

    if bool(choice["columns"]) == (variants is not None) or (variants and choice["named"]):
        raise click.UsageError("state --columns, or --from-genotypes and no dictionary")
    check_new(out)
    if variants is None:
        value = write_new_study(out, profile, choice)
    else:
        value = write_genotype_study(out, profile, variants, choice)
    then = follow(profile, "study", "explain", str(out))
    without = f" ({value['left_out']} variants left out)" if value.get("left_out") else ""
    say(value, as_json, f"Wrote {out}: {len(value['columns'])} columns{without}. Next: {then}")


@study.command()
@file_argument
@at_profile
def resolve(file: Path, profile: Path | None, as_json: bool) -> None:
    """Print STUDY.toml with all that its dictionary says: what is sent, and what each site reads."""
    from eigenveil.study.toml import parse_study, study_to_dict, study_to_toml
    from eigenveil_client.analyst.dictionaries import study_of, tell_overrides

    resolved = study_of(file, profile)
    tell_overrides(resolved)
    whole = parse_study(resolved.text)
    say(study_to_dict(whole), as_json, study_to_toml(whole))


@study.command(name="list")
@at_profile
def list_(profile: Path | None, as_json: bool) -> None:
    """Every study of the federation, oldest first."""
    from rich.table import Table

    from eigenveil_client.analyst.client import shown_names
    from eigenveil_client.analyst.profile import follow
    from eigenveil_client.analyst.study_text import row_value, share
    from eigenveil_client.analyst.talk import at

    rows = at(profile, lambda analyst: analyst.studies())
    if as_json:
        click.echo(json.dumps({"studies": [row_value(row) for row in rows]}, sort_keys=True))
        return
    if not rows:
        submitting = follow(profile, "study", "submit", "STUDY.toml")
        console.print(f"No study yet. Submit one with: {submitting}", markup=False, soft_wrap=True)
        return
    table = Table("study", "name", "state", "rounds", "spent of its price", "submitted")
    for name, row in zip(shown_names(rows), rows, strict=True):
        told = row_value(row)
        submitted = told["submitted"][:16].replace("T", " ")  # to the minute
        table.add_row(told["study"][:12], name, told["state"], str(row.rounds), share(row), submitted)
    console.print(table)


@study.command()
@study_argument
@at_profile
def watch(wanted: str, profile: Path | None, as_json: bool) -> int:
    """Follow STUDY to its end; Ctrl-C stops following, not the study. --json: an object an event."""
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.profile import follow
    from eigenveil_client.analyst.python.connected import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        run = federation.run(wanted)
        if not studies.watch(run, profile, events=as_json):
            return INTERRUPTED
    if not as_json:
        fetching = follow(profile, "study", "result", run.short)
        console.print(f"Released. Fetch it with: {fetching}", markup=False, soft_wrap=True)
    return 0


@study.command()
@study_argument
@at_profile
def show(wanted: str, profile: Path | None, as_json: bool) -> None:
    """What is known of STUDY."""
    from eigenveil_client.analyst.study_text import row_lines, row_value
    from eigenveil_client.analyst.talk import at

    row = at(profile, lambda analyst: analyst.find(wanted))
    say(row_value(row), as_json, row_lines(row))


@study.command()
@file_argument
@at_profile
def explain(file: Path, profile: Path | None, as_json: bool) -> None:
    """What STUDY.toml would ask, reveal and cost. Charges nothing."""
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.python.connected import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        told = studies.whole_study(federation, file).explain()
    say(told.value, as_json, str(told))


@study.command()
@study_argument
@out_option
@at_profile
def result(wanted: str, out: Path, profile: Path | None, as_json: bool) -> None:
    """Fetch the release of STUDY, check its signature, show it, write release.json and report.html."""
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.python.connected import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        studies.fetch(federation.run(wanted), out, profile, as_json)


@study.command()
@study_argument
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("rounds.json"), show_default=True
)
@at_profile
def log(wanted: str, out: Path, profile: Path | None, as_json: bool) -> None:
    """Fetch the signed rounds of STUDY, all that its result is made of, for `eigenveil verify --log`."""
    from eigenveil.reporting.round_log import RoundLog
    from eigenveil.reporting.verify import load_release
    from eigenveil_client.analyst.client import Analyst
    from eigenveil_client.analyst.talk import at

    check_output(out)

    async def work(analyst: Analyst) -> RoundLog:
        row = await analyst.find(wanted)
        document = load_release(await analyst.release(row.plan_digest)).document
        return await analyst.rounds(row.plan_digest, len(document["rounds"]))

    fetched = at(profile, work)
    write_durably(out, fetched.to_json())
    say({"log": str(out), "rounds": len(fetched.messages)}, as_json, str(out))


@study.command()
@study_argument
@at_profile
def cancel(wanted: str, profile: Path | None, as_json: bool) -> None:
    """End STUDY now. What was charged stays charged; the rest of its price is free again."""
    from eigenveil_client.analyst.python.connected import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        run = federation.run(wanted)
        run.cancel()
    say({"cancelled": run.digest}, as_json, f"Cancelled {run.name} ({run.short}).")

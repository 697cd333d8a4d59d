"""`eigenveil study`: new, resolve, submit, list, watch, show, explain, result, log, cancel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eigenveil_client.analyst.options import Names, dictionary_option, profile_and_json_options
from eigenveil_common.command import FILE, FILE_OR_FOLDER, FOLDER, console, errors, print_result
from eigenveil_common.examples import example
from eigenveil_common.files import check_new, check_output, write_durably
from eigenveil_common.start import INTERRUPTED

study_argument = click.argument("wanted", metavar="STUDY")
file_argument = click.argument("file", metavar="STUDY.toml", type=FILE)
out_option = click.option(
    "--out", type=FOLDER, default=Path(),
    help="Folder for release.zip and report.html [default: here].",
)  # fmt: skip


progress_option = click.option(
    "--progress/--no-progress", default=None,
    help="A line for each round in a script, or no bar at a terminal [default: a bar at a terminal alone].",
)  # fmt: skip


@click.group()
def study() -> None:
    """Manage studies at the coordinator you are enrolled with.

    STUDY is a study's digest, at least 6 characters of its beginning, or its name when that is unique."""


@study.command("example")
@click.argument("file", type=click.Choice(["study", "profile"]), default="study")
def show_example(file: str) -> None:
    """Print a study's TOML, or a profile.toml, with every key and its meaning."""
    click.echo(example(file), nl=False)


@study.command()
@file_argument
@click.option(
    "--submission",
    help="Id of the submission: one id is one study [default: the id under which you signed this study, if "
    "the coordinator does not list it; else random].",
)
@click.option(
    "--expires-days", default=7, show_default=True, type=click.IntRange(1, 31),
    help="Validity of your signature: sites refuse the study afterwards.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Sign without a prompt.")
@click.option(
    "--again", is_flag=True, help="Charge a study again that was submitted before, without a prompt."
)
@click.option("--wait", is_flag=True, help="Watch it to its end, then write the release and the report.")
@progress_option
@out_option
@profile_and_json_options
def submit(
    file: Path,
    submission: str | None,
    expires_days: int,
    yes: bool,
    again: bool,
    wait: bool,
    progress: bool | None,
    out: Path,
    profile: Path | None,
    as_json: bool,
) -> int:
    """Sign STUDY.toml with your own key, and submit it. A lost connection is retried: the study starts once.

    The coordinator plans it first, and a plan that is not of your study is not signed. What you sign is
    shown: every value of the study, each column with its bounds, the algorithm that auto chose, and the id.
    You confirm it; with --json or without a terminal, add --yes. Read a file from the coordinator's pages
    before you sign it.

    The same study under another id would be charged again. You confirm that first; with --json or without a
    terminal it is refused (exit code 9) unless you add --again."""
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.display import approval_text
    from eigenveil_client.analyst.profile import next_command
    from eigenveil_client.analyst.python.connect import ConnectedFederation
    from eigenveil_client.analyst.release_files import check_folder

    with ConnectedFederation(profile) as federation:
        wanted = studies.load_study(federation, file)
        chosen = submission or wanted.submission_id(again=again)
        if wait:
            check_folder(out, lambda existing: bool(existing["plan"]["submission"] == chosen))
        studies.check_can_sign(yes=yes, as_json=as_json)  # after the check of the study itself
        if not again:
            studies.confirm_repeat(wanted, chosen, profile, as_json)
        signing: list[str] = []
        run = wanted.submit(
            again=True,
            submission=chosen,
            expires_days=expires_days,
            notify=studies.signature_prompt(signing, yes=yes),
        )
        for sentence in run.warnings:
            errors.print(f"warning: {sentence}", style="yellow", markup=False)
        if not wait:
            value: dict[str, Any] = {"study": run.digest, "name": run.name, "submission": chosen}
            value |= {"signed": signing[0], "warnings": run.warnings}
            value |= {"overrides": wanted.resolved.overrides, "approval": wanted.approval}
            watching = next_command(profile, "study", "watch", run.short)
            message = (
                f"Submitted {run.name} as {run.short}. {approval_text(wanted.approval, run.status.state)}"
            )
            print_result(value, as_json, f"{message}\nFollow it with: {watching}")
            return 0
        if not as_json:
            console.print(approval_text(wanted.approval, run.status.state), markup=False, soft_wrap=True)
        if not studies.watch(run, profile, progress=progress, quiet=as_json):
            return INTERRUPTED
        studies.fetch(run, out, profile, as_json)
        return 0


@study.command()
@click.option(
    "--columns", default="", type=Names(), help="Names, separated by commas; see `eigenveil columns`."
)
@click.option(
    "--from-genotypes", "variants", metavar="FILE", type=FILE_OR_FOLDER,
    help="Instead of --columns: all variants of a .bim or .zarr.",
)  # fmt: skip
@click.option(
    "--sites",
    default="",
    type=Names(),
    help="Names, separated by commas [default: all that do not lack a column].",
)
@click.option("--components", default=2, show_default=True, type=click.IntRange(1))
@click.option("--epsilon", default=1.0, show_default=True)
@click.option("--delta", default=1e-6, show_default=True)
@click.option("--person-column", help="The column of persons [default: the one that all sites state].")
@click.option("--name", help="The study's name [default: as its file].")
@click.option("--purpose", default="", help="The purpose in a sentence, for those who must consent.")
@dictionary_option
@click.option("--out", type=FILE, default=Path("study.toml"), show_default=True)
@profile_and_json_options
def new(out: Path, profile: Path | None, as_json: bool, variants: Path | None, **choice: Any) -> None:
    """Write a study file of chosen columns, with the dictionary's units and bounds.

    With --from-genotypes a column counts one allele of a variant. Variants that read alike on both strands
    (A/T, C/G) are left out, and those with one allele."""
    from eigenveil_client.analyst.catalogue import write_genotype_study, write_new_study
    from eigenveil_client.analyst.profile import next_command

    if bool(choice["columns"]) == (variants is not None) or (variants and choice["named"]):
        raise click.UsageError("state either --columns, or --from-genotypes without --dictionary")
    check_new(out)
    if variants is None:
        value = write_new_study(out, profile, choice)
    else:
        value = write_genotype_study(out, profile, variants, choice)
    for sentence in value.get("warnings", ()):
        errors.print(f"warning: {sentence}", style="yellow", markup=False)
    then = next_command(profile, "study", "explain", str(out))
    without = f" ({value['left_out']} variants left out)" if value.get("left_out") else ""
    print_result(value, as_json, f"Wrote {out}: {len(value['columns'])} columns{without}. Next: {then}")


@study.command()
@file_argument
@profile_and_json_options
def resolve(file: Path, profile: Path | None, as_json: bool) -> None:
    """Print STUDY.toml with units and bounds from its dictionary and your profile's applicant, as it is sent
    to each site."""
    from eigenveil.study.toml import parse_study, study_to_dict, study_to_toml
    from eigenveil_client.analyst.federation import print_overrides, read_own_study

    resolved = read_own_study(file, profile)
    print_overrides(resolved)
    whole = parse_study(resolved.text)
    print_result(study_to_dict(whole), as_json, study_to_toml(whole))


@study.command(name="list")
@profile_and_json_options
def list_(profile: Path | None, as_json: bool) -> None:
    """List every study of the federation, oldest first."""
    from rich.table import Table

    from eigenveil_client.analyst.client import shown_names
    from eigenveil_client.analyst.coordinator import call_coordinator
    from eigenveil_client.analyst.display import row_value, share
    from eigenveil_client.analyst.profile import next_command

    rows = call_coordinator(profile, lambda analyst: analyst.studies())
    if as_json:
        print_result({"studies": [row_value(row) for row in rows]}, True, "")
        return
    if not rows:
        submitting = next_command(profile, "study", "submit", "STUDY.toml")
        console.print(f"No study yet. Submit one with: {submitting}", markup=False, soft_wrap=True)
        return
    table = Table("study", "name", "state", "rounds", "spent of its cost", "submitted")
    for name, row in zip(shown_names(rows), rows, strict=True):
        value = row_value(row)
        submitted = value["submitted"][:16].replace("T", " ")  # to the minute
        table.add_row(value["study"][:12], name, value["state"], str(row.rounds), share(row), submitted)
    console.print(table)


@study.command()
@study_argument
@progress_option
@profile_and_json_options
def watch(wanted: str, progress: bool | None, profile: Path | None, as_json: bool) -> int:
    """Follow STUDY to its end. Ctrl-C stops following, not the study. --json: one object for each event."""
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.profile import next_command
    from eigenveil_client.analyst.python.connect import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        run = federation.run(wanted)
        if not studies.watch(run, profile, progress=progress, events=as_json):
            return INTERRUPTED
    if not as_json:
        fetching = next_command(profile, "study", "result", run.short)
        console.print(f"Released. Fetch it with: {fetching}", markup=False, soft_wrap=True)
    return 0


@study.command()
@study_argument
@profile_and_json_options
def show(wanted: str, profile: Path | None, as_json: bool) -> None:
    """Show the status of STUDY."""
    from eigenveil_client.analyst.coordinator import call_coordinator
    from eigenveil_client.analyst.display import row_lines, row_value

    row = call_coordinator(profile, lambda analyst: analyst.find(wanted))
    print_result(row_value(row), as_json, row_lines(row))


@study.command()
@file_argument
@profile_and_json_options
def explain(file: Path, profile: Path | None, as_json: bool) -> None:
    """Show the queries of STUDY.toml, what they reveal, and its cost. Charges nothing."""
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.python.connect import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        explanation = studies.load_study(federation, file).explain()
    print_result(explanation.value, as_json, str(explanation))


@study.command()
@study_argument
@out_option
@profile_and_json_options
def result(wanted: str, out: Path, profile: Path | None, as_json: bool) -> None:
    """Fetch the release of STUDY, check its signature, show it, write release.zip and report.html."""
    from eigenveil_client.analyst import studies
    from eigenveil_client.analyst.python.connect import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        studies.fetch(federation.run(wanted), out, profile, as_json)


@study.command()
@study_argument
@click.option("--out", type=FILE, default=Path("rounds.json"), show_default=True)
@profile_and_json_options
def log(wanted: str, out: Path, profile: Path | None, as_json: bool) -> None:
    """Fetch the signed rounds of STUDY, which determine its result, for `eigenveil verify --log`."""
    from eigenveil.reporting.verify import RoundLog, load_release
    from eigenveil_client.analyst.client import Analyst
    from eigenveil_client.analyst.coordinator import call_coordinator

    check_output(out)

    async def work(analyst: Analyst) -> RoundLog:
        row = await analyst.find(wanted)
        document = load_release(await analyst.release(row.plan_digest)).document
        return await analyst.rounds(row.plan_digest, len(document["rounds"]))

    fetched = call_coordinator(profile, work)
    write_durably(out, fetched.to_json())
    print_result({"log": str(out), "rounds": len(fetched.messages)}, as_json, str(out))


@study.command()
@study_argument
@profile_and_json_options
def cancel(wanted: str, profile: Path | None, as_json: bool) -> None:
    """Cancel STUDY now. Charges remain; the rest of its cost is available again."""
    from eigenveil_client.analyst.python.connect import ConnectedFederation

    with ConnectedFederation(profile) as federation:
        run = federation.run(wanted)
        run.cancel()
    print_result({"cancelled": run.digest}, as_json, f"Cancelled {run.name} ({run.short}).")

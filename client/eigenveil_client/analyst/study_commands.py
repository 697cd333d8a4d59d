"""`eigenveil study`: submit, list, watch, show, explain, result, log, cancel."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.table import Table

from eigenveil.errors import Code, RequestError
from eigenveil.reporting.round_log import RoundLog
from eigenveil.reporting.verify import load_release
from eigenveil.study.toml import parse_study, study_digest
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.analyst.display import Display, state_word
from eigenveil_client.analyst.profile import at_profile, follow, load_profile
from eigenveil_client.analyst.study_text import event_value, explanation_text, row_value, study_text
from eigenveil_client.analyst.verify import check_folder, write_result
from eigenveil_common.command import console, errors, say
from eigenveil_common.examples import example
from eigenveil_common.files import check_output, write_durably
from eigenveil_common.start import INTERRUPTED
from eigenveil_proto.v1 import eigenveil_pb2 as pb

T = TypeVar("T")
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


def _with(profile: Path | None, work: Callable[[Analyst], Coroutine[Any, Any, T]]) -> T:
    identity = load_profile(profile)

    async def talk() -> T:
        async with Analyst(identity) as analyst:
            return await work(analyst)

    return asyncio.run(talk())


@study.command()
@file_argument
@click.option("--submission", help="Submit under this id: the same id twice is one study [default: random].")
@click.option("--again", is_flag=True, help="Spend anew on a study that was submitted before; ask nobody.")
@click.option("--wait", is_flag=True, help="Watch it to its end, then write the release and the report.")
@out_option
@at_profile
def submit(
    file: Path,
    submission: str | None,
    again: bool,
    wait: bool,
    out: Path,
    profile: Path | None,
    as_json: bool,
) -> int:
    """Submit STUDY.toml. A lost connection is retried: the study starts once.

    The same study under another id would spend its price once more: you are asked first, or with --json or
    without a terminal refused (exit code 9) unless --again is there.
    """
    text, chosen = study_text(file), submission or uuid.uuid4().hex
    if wait:
        check_folder(out, lambda held: bool(held["plan"]["submission"] == chosen))
    if not again:
        _ask_before_repeating(text, chosen, profile, as_json)
    plan, warnings = _with(profile, lambda analyst: analyst.submit(text, chosen))
    for sentence in warnings:
        errors.print(f"warning: {sentence}", style="yellow", markup=False)
    value = {"study": plan.digest, "name": plan.study.name, "submission": chosen, "warnings": warnings}
    if not wait:
        watching = follow(profile, "study", "watch", plan.digest[:12])
        say(value, as_json, f"Submitted {plan.study.name} as {plan.digest[:12]}.\nFollow it with: {watching}")
        return 0
    digest = bytes.fromhex(plan.digest)
    if not _watch(profile, digest, plan.study.name, quiet=as_json):
        return INTERRUPTED
    _fetch(digest, profile, out, as_json)
    return 0


def _ask_before_repeating(text: str, submission: str, profile: Path | None, as_json: bool) -> None:
    """Whether a study that has, or will have, a result is to be paid for once more.

    Raises:
        RequestError: code `conflict`, it is not.
    """
    mine = bytes.fromhex(study_digest(parse_study(text)))
    rows = _with(profile, lambda analyst: analyst.studies())
    lasting = (pb.STUDY_STATE_RUNNING, pb.STUDY_STATE_RELEASED)
    same = [row for row in rows if row.study_digest == mine and row.state in lasting]
    if not same or submission in (row.submission for row in same):
        return
    told = f"this very study is {state_word(same[-1].state)} as {same[-1].plan_digest.hex()[:12]}"
    price = f"submitted again it would spend another {same[-1].micro_rho} micro-rho"
    if not as_json and sys.stdin.isatty() and click.confirm(f"{told}; {price}. Submit?"):
        return
    following = follow(profile, "study", "watch", same[-1].plan_digest.hex()[:12])
    raise RequestError(
        Code.CONFLICT, f"not submitted: {told}, see `{following}`; {price}: add --again if you mean that"
    )


@study.command(name="list")
@at_profile
def list_(profile: Path | None, as_json: bool) -> None:
    """Every study of the federation, oldest first."""
    rows = _with(profile, lambda analyst: analyst.studies())
    if as_json:
        click.echo(json.dumps({"studies": [row_value(row) for row in rows]}, sort_keys=True))
        return
    if not rows:
        submitting = follow(profile, "study", "submit", "STUDY.toml")
        console.print(f"No study yet. Submit one with: {submitting}", markup=False, soft_wrap=True)
        return
    table = Table("study", "name", "state", "rounds", "spent (micro-rho)", "submitted")
    for row in rows:
        told = row_value(row)
        spent = f"{row.spent_micro_rho} of {row.micro_rho}"
        submitted = told["submitted"][:16].replace("T", " ")  # to the minute
        table.add_row(told["study"][:12], row.name, told["state"], str(row.rounds), spent, submitted)
    console.print(table)


@study.command()
@study_argument
@at_profile
def watch(wanted: str, profile: Path | None, as_json: bool) -> int:
    """Follow STUDY to its end; Ctrl-C stops following, not the study. --json: an object an event."""
    row = _with(profile, lambda analyst: analyst.find(wanted))
    if not _watch(profile, row.plan_digest, row.name, events=as_json):
        return INTERRUPTED
    if not as_json:
        fetching = follow(profile, "study", "result", row.plan_digest.hex()[:12])
        console.print(f"Released. Fetch it with: {fetching}", markup=False, soft_wrap=True)
    return 0


@study.command()
@study_argument
@at_profile
def show(wanted: str, profile: Path | None, as_json: bool) -> None:
    """What is known of STUDY."""
    row = _with(profile, lambda analyst: analyst.find(wanted))
    value = row_value(row)
    say(value, as_json, "\n".join(f"{key}: {value[key]}" for key in value if value[key] != ""))


@study.command()
@file_argument
@at_profile
def explain(file: Path, profile: Path | None, as_json: bool) -> None:
    """What STUDY.toml would ask, reveal and cost. Charges nothing."""
    text = study_text(file)
    value = json.loads(_with(profile, lambda analyst: analyst.explain(text)))
    say(value, as_json, explanation_text(value))


@study.command()
@study_argument
@out_option
@at_profile
def result(wanted: str, out: Path, profile: Path | None, as_json: bool) -> None:
    """Fetch the release of STUDY, check its signature, write release.json and report.html."""
    row = _with(profile, lambda analyst: analyst.find(wanted))
    _fetch(row.plan_digest, profile, out, as_json)


@study.command()
@study_argument
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("rounds.json"), show_default=True
)
@at_profile
def log(wanted: str, out: Path, profile: Path | None, as_json: bool) -> None:
    """Fetch the signed rounds of STUDY, all that its result is made of, for `eigenveil verify --log`."""
    check_output(out)

    async def work(analyst: Analyst) -> RoundLog:
        row = await analyst.find(wanted)
        document = load_release(await analyst.release(row.plan_digest)).document
        return await analyst.rounds(row.plan_digest, len(document["rounds"]))

    fetched = _with(profile, work)
    write_durably(out, fetched.to_json())
    say({"log": str(out), "rounds": len(fetched.messages)}, as_json, str(out))


@study.command()
@study_argument
@at_profile
def cancel(wanted: str, profile: Path | None, as_json: bool) -> None:
    """End STUDY now. What was charged stays charged; the rest of its price is free again."""

    async def work(analyst: Analyst) -> pb.StudyRow:
        row = await analyst.find(wanted)
        await analyst.cancel(row.plan_digest)
        return row

    row = _with(profile, work)
    say(
        {"cancelled": row.plan_digest.hex()}, as_json, f"Cancelled {row.name} ({row.plan_digest.hex()[:12]})."
    )


def _watch(
    profile: Path | None, digest: bytes, name: str, *, quiet: bool = False, events: bool = False
) -> bool:
    """Whether a study was watched to its release; False when the user stopped watching.

    Raises:
        RequestError: it ended without one.
    """

    async def work(analyst: Analyst) -> pb.StudyEvent:
        last = pb.StudyEvent()
        async for last in analyst.watch(digest, display.tell):
            if events:
                click.echo(json.dumps(event_value(last), sort_keys=True))
            display.show(last)
        return last

    with Display(console, f"{name} ({digest.hex()[:12]})", quiet=quiet or events) as display:
        try:
            ended = _with(profile, work)
        except KeyboardInterrupt:
            again = f"Watch again: {follow(profile, 'study', 'watch', digest.hex()[:12])}"
            errors.print(f"Stopped watching; the study goes on. {again}", markup=False, soft_wrap=True)
            return False
    if ended.state == pb.STUDY_STATE_CANCELLED:
        raise RequestError(Code.CANCELLED, "the study was cancelled; what was charged stays charged")
    if ended.state == pb.STUDY_STATE_FAILED:
        raise RequestError(Code.STUDY_FAILED, ended.failure or "the study failed")
    return True


def _fetch(digest: bytes, profile: Path | None, out: Path, as_json: bool) -> None:
    data = _with(profile, lambda analyst: analyst.release(digest))
    written = write_result(data, out)
    words, found = written.document["guarantee"]["words"], written.document["result"]
    declined = found["declined"]
    value = {
        "study": digest.hex(),
        "release": str(written.release),
        "report": str(written.report),
        "guarantee": written.document["guarantee"],
        "declined": declined,
        "warnings": found["warnings"],
    }
    outcome = [f"no release: {declined}"] if declined else []
    outcome += [f"warning: {sentence}" for sentence in found["warnings"]]
    say(value, as_json, "\n".join([str(written.release), str(written.report), words, *outcome]))

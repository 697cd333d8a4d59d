"""Prompts and output of the commands on studies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from eigenveil.dictionary.readiness import SiteReadiness
from eigenveil.errors import Code, RequestError
from eigenveil.reporting.loadings import component_loadings, release_warnings
from eigenveil.reporting.result import EVERY_COMPONENT, Result
from eigenveil.study.toml import StudyDraft
from eigenveil_client.analyst.display import Display, event_value
from eigenveil_client.analyst.federation import print_overrides
from eigenveil_client.analyst.profile import next_command
from eigenveil_client.analyst.python.connect import ConnectedFederation
from eigenveil_client.analyst.python.run import SHORT, Run
from eigenveil_client.analyst.python.study import FederatedStudy, repeated
from eigenveil_client.analyst.release_files import RELEASE, REPORT, describe_analyst, write_result
from eigenveil_common.command import console, errors, is_interactive, print_result
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def components_table(result: Result) -> Table:
    """Return a table of components with their strongest columns."""
    table = Table(title="Principal components", title_justify="left")
    for heading in ("component", "variance", "share"):
        table.add_column(heading, justify="right")
    table.add_column("columns", overflow="fold")
    table.add_column("strongest loadings", overflow="fold")
    for one in component_loadings(result):
        numbers = (str(one.number), f"{one.variance:.4g}", f"{100 * one.share:.1f} %")
        table.add_row(*numbers, escape(one.sentence), escape(one.strongest_text))
    return table


def predicted_error_text(result: Result) -> str:
    """Return the predicted error of a release as text; empty if it has none."""
    sine = result.predicted_sin_angle
    if sine is None:
        return ""
    if result.has_every_component:
        return f"predicted error: {EVERY_COMPONENT}; the variances show which of them stand out"
    return f"predicted sine of the largest angle to the exact components (0 exact, 1 noise): {sine:.3f}"


def load_study(federation: ConnectedFederation, file: Path) -> FederatedStudy:
    """Return the study in a file, checked against the federation, and print its overrides. It is not sent."""
    study = federation.study(file)
    print_overrides(study.resolved)
    return study


def site_readiness(file: Path, profile: Path | None) -> tuple[StudyDraft, tuple[SiteReadiness, ...]]:
    """Return the study in a file as it would be sent, and the readiness of its sites, by what they state."""
    with ConnectedFederation(profile) as federation:
        study = load_study(federation, file)
        plan = study.plan()
        return study.resolved, (*plan.sites, *plan.left_out)


def confirm_repeat(study: FederatedStudy, submission: str, profile: Path | None, as_json: bool) -> None:
    """Ask for confirmation if a study has, or will have, a result and would be charged again."""
    same = study.same(submission)
    if same is None:
        return
    text = repeated(same, study.study)
    if is_interactive(as_json) and click.confirm(f"{text}. Submit?"):
        return
    following = next_command(profile, "study", "watch", same.plan_digest.hex()[:SHORT])
    todo = f"See `{following}`, or add --again to repeat it"
    raise RequestError(Code.CONFLICT, f"not submitted: {text}. {todo}")


def check_can_sign(*, yes: bool, as_json: bool) -> None:
    """Raise a UsageError if no person can confirm a signature: there is no terminal, and no --yes."""
    if not (yes or is_interactive(as_json)):
        raise click.UsageError(
            "a signature needs confirmation, and there is no terminal (or --json). Read `eigenveil study "
            "explain`, then add --yes"
        )


def signature_prompt(summaries: list[str], *, yes: bool) -> Callable[[str], None]:
    """Return a function that prints a summary, adds it to `summaries`, and asks to sign unless `yes`."""

    def show_summary(summary: str) -> None:
        summaries.append(summary)
        errors.print(summary, markup=False, soft_wrap=True)
        if not yes and not click.confirm("Sign and submit it?", err=True):
            raise RequestError(Code.CONFLICT, "not signed and not submitted")

    return show_summary


def watch(
    run: Run, profile: Path | None, *, progress: bool | None = None, quiet: bool = False, events: bool = False
) -> bool:
    """Watch a study; return True after its release, and False if the user stopped watching. `progress`: as
    `Run.wait`."""
    shown = False if quiet or events else progress
    with Display(console, f"{run.name} ({run.short})", progress=shown) as display:
        try:
            for message in run.messages():
                if events and isinstance(message, pb.StudyEvent):
                    click.echo(json.dumps(event_value(message), sort_keys=True))
                display.take(message)
        except KeyboardInterrupt:
            again = f"Watch again: {next_command(profile, 'study', 'watch', run.short)}"
            errors.print(f"Stopped watching. The study continues. {again}", markup=False, soft_wrap=True)
            return False
    run.check_released()
    return True


def fetch(run: Run, out: Path, profile: Path | None, as_json: bool) -> None:
    """Write the release of a study and its report, and print its result."""
    release, files = write_result(run.fetch(), out), [str(out / RELEASE), str(out / REPORT)]
    guarantee, found = release.document["guarantee"], release.result
    asker, asker_sentence = describe_analyst(release.document, profile)
    declined, warnings = found.declined, release_warnings(release)
    value = {
        "study": run.digest,
        "release": files[0],
        "report": files[1],
        "analyst": asker,
        "guarantee": guarantee,
        "declined": declined,
        "warnings": list(warnings),
        "prior": None if found.prior is None else found.prior.to_dict(),
    }
    outcome = [f"no release: {declined}" if declined else predicted_error_text(found)]
    outcome += [f"decision: {found.decision}"] if found.decision else []
    outcome += [] if found.prior is None else [found.prior.text]
    outcome += [f"warning: {sentence}" for sentence in warnings]
    if not declined and not as_json:
        console.print(components_table(found))
    print_result(
        value, as_json, "\n".join([*files, asker_sentence, guarantee["text"], *filter(None, outcome)])
    )

"""What the commands about studies say and ask, beside what `python` does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from eigenveil.errors import Code, RequestError
from eigenveil_client.analyst.dictionaries import tell_overrides
from eigenveil_client.analyst.display import Display
from eigenveil_client.analyst.profile import follow
from eigenveil_client.analyst.python.connected import ConnectedFederation
from eigenveil_client.analyst.python.run import SHORT, Run
from eigenveil_client.analyst.python.study import FederatedStudy, repeated
from eigenveil_client.analyst.releases.shown import components_table, error_words
from eigenveil_client.analyst.releases.verify import describe_analyst, write_result
from eigenveil_client.analyst.study_text import event_value
from eigenveil_common.command import asks, console, errors, say
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def whole_study(federation: ConnectedFederation, file: Path) -> FederatedStudy:
    """The study in a file, held against what the federation has; who asks is shown where it differs from the
    dictionary. Nothing of it was sent.

    Raises:
        RequestError: it is refused, or the federation does not have its sites or its columns.
    """
    study = federation.study(file)
    tell_overrides(study.whole)
    return study


def ask_before_repeating(study: FederatedStudy, submission: str, profile: Path | None, as_json: bool) -> None:
    """Whether a study that has, or will have, a result is to be paid for once more.

    Raises:
        RequestError: code `conflict`, it is not.
    """
    same = study.same(submission)
    if same is None:
        return
    told = repeated(same, study.study)
    if asks(as_json) and click.confirm(f"{told}. Submit?"):
        return
    following = follow(profile, "study", "watch", same.plan_digest.hex()[:SHORT])
    raise RequestError(
        Code.CONFLICT, f"not submitted: {told}: see `{following}`, or add --again if you mean that"
    )


def check_asked(*, yes: bool, as_json: bool) -> None:
    """Insist that a person can be asked for a signature, or was.

    Raises:
        click.UsageError: nobody can.
    """
    if not (yes or asks(as_json)):
        raise click.UsageError(
            "nobody is there to ask for a signature (no terminal, or --json); read `eigenveil study "
            "explain`, then add --yes"
        )


def signature_prompt(shown: list[str], *, yes: bool) -> Callable[[str], None]:
    """A function that shows a person the summary to be signed, adds it to `shown`, and asks unless `yes`.

    Raises:
        RequestError: code `conflict`, the answer is no.
    """

    def tell(summary: str) -> None:
        shown.append(summary)
        errors.print(summary, markup=False, soft_wrap=True)
        if not yes and not click.confirm("Sign and submit it?", err=True):
            raise RequestError(Code.CONFLICT, "not signed, and so not submitted")

    return tell


def watch(run: Run, profile: Path | None, *, quiet: bool = False, events: bool = False) -> bool:
    """Whether a study was watched to its release; False when the user stopped watching.

    Raises:
        RequestError: it ended without one.
    """
    with Display(console, f"{run.name} ({run.short})", quiet=quiet or events) as display:
        try:
            for message in run.messages():
                if events and isinstance(message, pb.StudyEvent):
                    click.echo(json.dumps(event_value(message), sort_keys=True))
                display.take(message)
        except KeyboardInterrupt:
            again = f"Watch again: {follow(profile, 'study', 'watch', run.short)}"
            errors.print(f"Stopped watching; the study goes on. {again}", markup=False, soft_wrap=True)
            return False
    run.check_released()
    return True


def fetch(run: Run, out: Path, profile: Path | None, as_json: bool) -> None:
    """Write the release of a study and its report, and say what it is."""
    written = write_result(run.fetch(), out)
    words, found = written.document["guarantee"]["words"], written.document["result"]
    asker, asked = describe_analyst(written.document, profile)
    declined = found["declined"]
    value = {
        "study": run.digest,
        "release": str(written.release),
        "report": str(written.report),
        "asked_by": asker,
        "guarantee": written.document["guarantee"],
        "declined": declined,
        "warnings": found["warnings"],
    }
    outcome = [f"no release: {declined}" if declined else error_words(found)]
    outcome += [f"warning: {sentence}" for sentence in found["warnings"]]
    told = [str(written.release), str(written.report), asked]
    if not declined and not as_json:
        console.print(components_table(found))
    say(value, as_json, "\n".join([*told, words, *filter(None, outcome)]))

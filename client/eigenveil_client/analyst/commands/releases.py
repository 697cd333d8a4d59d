"""`eigenveil verify`, `eigenveil report` and `eigenveil derive`, which work offline and at no cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.analyst.options import Names, json_option, profile_option
from eigenveil_common.command import FILE, SHORT_HELP, errors, print_result, print_result_as
from eigenveil_common.files import check_output, read, write_durably

if TYPE_CHECKING:
    from eigenveil.derived.moments import Moments

UNKNOWN = (
    "NOT VERIFIED: the release is intact, but the owner of its key is unknown. Pass the federation's key "
    "with --key"
)
UNKNOWN_SIGNER = 14

release_argument = click.argument("release", metavar="release.zip", type=FILE)


@click.command()
@release_argument
@click.option(
    "--key", metavar="HEX|FILE", help="The federation's release key, or an authorities.json that holds it."
)
@click.option(
    "--log",
    "log_file",
    type=FILE,
    help="Signed rounds of the study, from `eigenveil study log` or a site: recompute the result from them.",
)
@click.option("--any-key", is_flag=True, help="Accept a signature by any key: exit code 0.")
@profile_option
@json_option
def verify(
    release: Path, key: str | None, log_file: Path | None, any_key: bool, profile: Path | None, as_json: bool
) -> int:
    """Check a release without a network. Exit code 13 if one byte differs from what was signed.

    With --log every query is computed again from the plan and earlier releases, and the result from all of
    them. Exit code 13 as well if the release does not follow from what was signed.

    The signature of its analyst is checked against its plan, and the fingerprint of that key is shown:
    compare it with the analyst by telephone. A release in your name should be signed by your present key. If
    it is not, a sentence says so ("signed_by_current_key" with --json), and the exit code stays.

    The signer is checked with --key, or with your profile if it is of the release's federation. Without
    either the signer is unknown: exit code 14, or 0 with --any-key."""
    from eigenveil.reporting.explain import document_guarantee
    from eigenveil.reporting.loadings import release_warnings
    from eigenveil.reporting.verify import load_release
    from eigenveil_client.analyst import release_files

    if any_key and key is not None:
        raise click.UsageError("--any-key and --key exclude each other. Leave out one of them")
    signed = load_release(read(release))
    trusted = release_files.check_signer(signed, key, profile)
    document, public_key = signed.document, signed.public_key.hex()
    federation = document["plan"]["federation"]
    asker, asker_sentence = release_files.describe_analyst(document, profile)
    value = {
        "intact": True,
        "key_checked": trusted,
        "public_key": public_key,
        "private": document["private"],
        "plan_digest": document["plan_digest"],
        "name": document["plan"]["study"]["name"],
        "federation": federation,
        "analyst": asker,
        "guarantee": document_guarantee(document),
        "trust": release_files.trust_statement(document),
        "warnings": list(release_warnings(signed)),
        "log": None if log_file is None else release_files.check_log(signed, log_file),
    }
    key_source = "the key you gave" if key is not None else "your profile's key of this federation"
    text = (
        f"{value['name']} of federation {federation}, plan {document['plan_digest'][:12]}, "
        f"signed by {key_source if trusted else public_key}.\n{asker_sentence}\n"
        f"{value['guarantee']['text']}\n"
        f"Trust: {value['trust']}."
    )
    text += "".join(f"\nwarning: {sentence}" for sentence in value["warnings"])
    if value["log"] is not None:
        text += f"\n{value['log']['text']}"
    print_result(value, as_json, f"Intact: {text}" if trusted else f"{UNKNOWN}.\n{text}")
    return 0 if trusted or any_key else UNKNOWN_SIGNER


@click.command()
@release_argument
@click.option("--out", type=FILE, default=Path("report.html"), show_default=True)
@profile_option
@json_option
def report(release: Path, out: Path, profile: Path | None, as_json: bool) -> None:
    """Write the report of a release as one HTML file.

    The signer is checked if your profile is of the release's federation; see `eigenveil verify`."""
    from eigenveil.reporting.report import render
    from eigenveil.reporting.verify import load_release
    from eigenveil_client.analyst.release_files import check_signer

    check_output(out, release)
    signed = load_release(read(release))
    trusted = check_signer(signed, None, profile)
    write_durably(out, render(signed, public_key=signed.public_key.hex()).encode())
    if not trusted:
        sentence = "the signer of this release was not checked. Run: eigenveil verify --key"
        errors.print(f"warning: {sentence}", style="yellow", markup=False)
    print_result({"report": str(out), "key_checked": trusted}, as_json, str(out))


key_option = click.option(
    "--key", metavar="HEX|FILE", help="The federation's release key, or a file with it."
)
level_option = click.option("--level", type=float, default=0.95, show_default=True, help="Of the intervals.")
columns_option = click.option(
    "--columns", type=Names(), help="Only these columns, without the noise of all others."
)
scaling_option = click.option(
    "--scaling",
    type=click.Choice(["released", "original", "standard"]),
    default="released",
    show_default=True,
    help="As the release scales columns, in their own units, or divided by their standard deviations.",
)
two_valued_option = click.option(
    "--two-valued",
    type=Names(),
    help="Columns whose only values are their two bounds: their means then check what clipping removed.",
)
number_option = click.option("-k", "--number", "k", required=True, type=click.IntRange(1), help="How many.")


@click.group(context_settings=SHORT_HELP)
def derive() -> None:
    """Compute further results from a released covariance, at no cost and without a call.

    release.zip is a federation's, whose signature is checked, or simulation.zip of `eigenveil simulate`,
    which has none. Every number is shown with its uncertainty from the privacy noise."""


def _derive_command(question: Callable[..., Any]) -> click.Command:
    """Return a command that computes a result from the moments of a release, and prints it."""

    @wraps(question)
    def command(
        release: Path,
        key: str | None,
        profile: Path | None,
        two_valued: list[str] | None,
        as_json: bool,
        **given: Any,
    ) -> None:
        from eigenveil_client.analyst.derived_tables import read_moments, show

        names = tuple(two_valued or ())
        if "other" in given:
            given["other"] = read_moments(given["other"], key, profile, names)
        answer = question(read_moments(release, key, profile, names), **given)
        print_result_as(answer.to_dict(), as_json, lambda _: show(answer))

    options = key_option(profile_option(two_valued_option(json_option(command))))
    return derive.command()(release_argument(options))


@_derive_command
@columns_option
@level_option
def correlation(moments: Moments, columns: list[str] | None, level: float) -> Any:
    """Compute correlations of all pairs of columns."""
    return moments.correlation(columns, level=level)


@_derive_command
@columns_option
@level_option
def partial(moments: Moments, columns: list[str] | None, level: float) -> Any:
    """Compute partial correlations of all pairs, given the other columns."""
    return moments.partial_correlations(columns, level=level)


@_derive_command
@click.option("--target", required=True, metavar="COLUMN", help="The dependent column.")
@click.option("--on", required=True, type=Names(), help="The predictor columns.")
@click.option(
    "--ridge", type=float, default=0.0, show_default=True, help="Added to variances, in parts of them."
)
@level_option
def regress(moments: Moments, target: str, on: list[str], ridge: float, level: float) -> Any:
    """Fit a linear regression, with errors of privacy and of sampling."""
    return moments.regress(target, on, ridge=ridge, level=level)


@_derive_command
@number_option
@scaling_option
@columns_option
@level_option
def pca(moments: Moments, k: int, scaling: str, columns: list[str] | None, level: float) -> Any:
    """Compute principal components, any number of them and in any units."""
    return moments.pca(k, scaling=scaling, columns=columns, level=level)


@_derive_command
@number_option
@click.option(
    "--rotation", type=click.Choice(["varimax", "promax", "none"]), default="varimax", show_default=True
)
@columns_option
@level_option
def factors(moments: Moments, k: int, rotation: str, columns: list[str] | None, level: float) -> Any:
    """Compute factors of the correlations, rotated so that each column loads on few."""
    return moments.factor_analysis(k, rotation=rotation, columns=columns, level=level)


@_derive_command
@click.argument("other", metavar="OTHER.zip", type=FILE)
@number_option
@scaling_option
def angle(moments: Moments, other: Moments, k: int, scaling: str) -> Any:
    """Compute the angles between the first components of two releases."""
    return moments.subspace_angle(other, k, scaling=scaling)


@_derive_command
@click.argument("rows", metavar="ROWS.csv", type=FILE)
@columns_option
@level_option
def mahalanobis(moments: Moments, rows: Path, columns: list[str] | None, level: float) -> Any:
    """Compute the distances of your own rows from the release's mean. The rows are not sent anywhere.

    The answer is as confidential as the rows."""
    from eigenveil_client.analyst.derived_tables import read_rows

    names = columns or list(moments.columns)
    return moments.mahalanobis(read_rows(rows, names), names, level=level)


COMMANDS = (verify, report, derive)

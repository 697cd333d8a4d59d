"""`eigenveil derive`: what else a release answers, offline and at no cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.analyst.options import json_option, profile_option
from eigenveil_common.command import FILE, SHORT_HELP, tell

if TYPE_CHECKING:
    from eigenveil.derived.moments import Moments


class _Names(click.ParamType[list[str]]):
    """Names of columns, after commas."""

    name = "a,b,c"

    def convert(self, value: Any, param: object, ctx: object) -> list[str]:
        return [name.strip() for name in str(value).split(",") if name.strip()]


release_argument = click.argument("release", metavar="release.json", type=FILE)
key_option = click.option(
    "--key", metavar="HEX|FILE", help="The federation's release key, or a file with it."
)
level_option = click.option("--level", type=float, default=0.95, show_default=True, help="Of the intervals.")
columns_option = click.option(
    "--columns", type=_Names(), help="Only these columns, which keeps the noise of all others out of it."
)
scaling_option = click.option(
    "--scaling",
    type=click.Choice(["released", "own", "standard"]),
    default="released",
    show_default=True,
    help="As the release scales columns, in their own units, or divided by their standard deviations.",
)
number_option = click.option("-k", "--number", "k", required=True, type=click.IntRange(1), help="How many.")


@click.group(context_settings=SHORT_HELP)
def derive() -> None:
    """Read more off a released covariance: it costs nothing, and asks nobody.

    release.json is a federation's, whose signature is checked, or simulation.json of `eigenveil simulate`,
    which bears none. Every number comes with what the privacy noise leaves unknown of it.
    """


def _asks(question: Callable[..., Any]) -> click.Command:
    """A command that puts a question to the moments of a release, and tells the answer."""

    @wraps(question)
    def command(release: Path, key: str | None, profile: Path | None, as_json: bool, **given: Any) -> None:
        from eigenveil_client.analyst.releases.derive import read_moments, show

        if "other" in given:
            given["other"] = read_moments(given["other"], key, profile)
        answer = question(read_moments(release, key, profile), **given)
        tell(answer.to_dict(), as_json, lambda _: show(answer))

    return derive.command()(release_argument(key_option(profile_option(json_option(command)))))


@_asks
@columns_option
@level_option
def correlation(moments: Moments, columns: list[str] | None, level: float) -> Any:
    """Correlations of all pairs of columns."""
    return moments.correlation(columns, level=level)


@_asks
@columns_option
@level_option
def partial(moments: Moments, columns: list[str] | None, level: float) -> Any:
    """Correlations of all pairs when the other columns are held fixed."""
    return moments.partial_correlations(columns, level=level)


@_asks
@click.option("--target", required=True, metavar="COLUMN", help="What is explained.")
@click.option("--on", required=True, type=_Names(), help="What it is explained by.")
@click.option(
    "--ridge", type=float, default=0.0, show_default=True, help="Added to variances, in parts of them."
)
@level_option
def regress(moments: Moments, target: str, on: list[str], ridge: float, level: float) -> Any:
    """A linear regression, with errors of privacy and of sampling."""
    return moments.regress(target, on, ridge=ridge, level=level)


@_asks
@number_option
@scaling_option
@columns_option
@level_option
def pca(moments: Moments, k: int, scaling: str, columns: list[str] | None, level: float) -> Any:
    """Principal components, any number of them and in any units."""
    return moments.pca(k, scaling=scaling, columns=columns, level=level)


@_asks
@number_option
@click.option(
    "--rotation", type=click.Choice(["varimax", "promax", "none"]), default="varimax", show_default=True
)
@columns_option
@level_option
def factors(moments: Moments, k: int, rotation: str, columns: list[str] | None, level: float) -> Any:
    """Factors behind the correlations, turned so that each column goes with few."""
    return moments.factor_analysis(k, rotation=rotation, columns=columns, level=level)


@_asks
@click.argument("other", metavar="OTHER.json", type=FILE)
@number_option
@scaling_option
def angle(moments: Moments, other: Moments, k: int, scaling: str) -> Any:
    """The angles between the first components of two releases."""
    return moments.subspace_angle(other, k, scaling=scaling)


@_asks
@click.argument("rows", metavar="ROWS.csv", type=FILE)
@columns_option
@level_option
def mahalanobis(moments: Moments, rows: Path, columns: list[str] | None, level: float) -> Any:
    """How far your own rows are from the release's mean. They are read here and sent nowhere.

    The answer is as confidential as the rows.
    """
    from eigenveil_client.analyst.releases.derive import read_rows

    names = columns or list(moments.columns)
    return moments.mahalanobis(read_rows(rows, names), names, level=level)


COMMANDS = (derive,)

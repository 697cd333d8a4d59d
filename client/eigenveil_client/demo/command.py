"""`eigenveil demo`: run the demonstration and print what it gave."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenveil.errors import Code, RequestError
from eigenveil.study.algorithm import PROPERTIES, Algorithm
from eigenveil.study.study import Trust
from eigenveil_client.analyst.options import json_option
from eigenveil_client.demo.shell import EXTRAS
from eigenveil_common.command import console, errors, needing, tell
from eigenveil_common.files import HAS_OWNERS

if TYPE_CHECKING:
    from eigenveil_client.demo.demo import Demonstration

CHOICES = [name.value for name, traits in PROPERTIES.items() if traits.federated]


@click.command()
@click.option("--sites", default=3, show_default=True, type=click.IntRange(1, 8))
@click.option("--algorithm", default="auto", show_default=True, type=click.Choice(CHOICES))
@click.option("--components", default=2, show_default=True, type=click.IntRange(1, 30))
@click.option("--epsilon", default=2.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option(
    "--trust",
    default=Trust.CENTRAL.value,
    show_default=True,
    type=click.Choice([one.value for one in Trust]),
    help="Who may see a site's totals: the coordinator, or nobody.",
)
@click.option(
    "--out", default=Path("demo-out"), show_default=True, type=click.Path(path_type=Path, file_okay=False)
)
@click.option(
    "--keep", is_flag=True, help="Leave the federation running, for studies of yours; Ctrl-C ends it."
)
@json_option
@needing(EXTRAS)
def demo(
    sites: int,
    algorithm: str,
    components: int,
    epsilon: float,
    trust: str,
    out: Path,
    keep: bool,
    as_json: bool,
) -> None:
    """Run a whole study on this machine: coordinator, sites and analyst.

    The coordinator and every site serve in processes of their own; all other commands of one program share
    one. The records are scikit-learn's breast-cancer set, 569 public records of 30 measurements, divided
    unevenly over the sites. Takes about ten seconds; stops all that it started. With --trust
    secure-aggregation the sites first exchange and confirm their cards, and then mask what they send. With
    --keep the federation goes on serving, with these columns as its dictionary, for `eigenveil.connect()`
    in Python and for the other commands with --profile.
    """
    from eigenveil_client.analyst.display import Display
    from eigenveil_client.demo.demo import demonstrate
    from eigenveil_client.demo.layout import demo_study
    from eigenveil_client.demo.show import show, stoppable

    if not HAS_OWNERS:
        raise RequestError(
            Code.BAD_ARGUMENT,
            "the demonstration starts a coordinator and sites, which need Linux or macOS; on Windows use WSL",
        )
    study = demo_study(sites, Algorithm(algorithm), components, epsilon, Trust(trust))
    talk = errors if as_json else console  # with --json, standard output holds the result only
    say = partial(talk.print, markup=False)
    with stoppable(), ExitStack() as live:
        display = live.enter_context(Display(talk, "breast-cancer"))

        def told(shown: Demonstration) -> None:
            live.close()
            tell(shown.value(), as_json, lambda value: show(value, shown, kept=keep))

        shown = demonstrate(
            study, out, say=lambda text: say(f"· {text}"), show=display.show, keep=told if keep else None
        )
    if not keep:
        told(shown)

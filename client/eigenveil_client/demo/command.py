"""`eigenveil demo`: run the demonstration and print what it gave."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil.study.algorithm import PROPERTIES, Algorithm
from eigenveil_client.analyst.options import json_option
from eigenveil_client.demo.shell import EXTRAS
from eigenveil_common.command import console, errors, needing, tell

CHOICES = [name.value for name, traits in PROPERTIES.items() if traits.federated]


@click.command()
@click.option("--sites", default=3, show_default=True, type=click.IntRange(1, 8))
@click.option("--algorithm", default="auto", show_default=True, type=click.Choice(CHOICES))
@click.option("--components", default=2, show_default=True, type=click.IntRange(1, 30))
@click.option("--epsilon", default=2.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option(
    "--out", default=Path("demo-out"), show_default=True, type=click.Path(path_type=Path, file_okay=False)
)
@json_option
@needing(EXTRAS)
def demo(sites: int, algorithm: str, components: int, epsilon: float, out: Path, as_json: bool) -> None:
    """Run a whole study on this machine: coordinator, sites and analyst.

    The coordinator and every site serve in processes of their own; all other commands of one program share
    one. The records are scikit-learn's breast-cancer set, 569 public records of 30 measurements, divided
    unevenly over the sites. Takes about ten seconds; stops all that it started.
    """
    from eigenveil_client.analyst.display import Display
    from eigenveil_client.demo.demo import demonstrate
    from eigenveil_client.demo.layout import demo_study
    from eigenveil_client.demo.show import show, stoppable

    study = demo_study(sites, Algorithm(algorithm), components, epsilon)
    talk = errors if as_json else console  # with --json, standard output holds the result only
    with stoppable(), Display(talk, "breast-cancer") as display:
        shown = demonstrate(
            study, out, say=lambda text: talk.print(f"· {text}", markup=False), show=display.show
        )
    tell(shown.value(), as_json, lambda value: show(value, shown))

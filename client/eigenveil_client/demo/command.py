"""`eigenveil demo`: run the demonstration and print its result."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenveil.errors import Code, RequestError
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Trust
from eigenveil_client.analyst.options import json_option
from eigenveil_client.demo.processes import EXTRAS
from eigenveil_common.command import FOLDER, console, errors, print_result_as, require_extra
from eigenveil_common.files import HAS_FILE_OWNERS

if TYPE_CHECKING:
    from eigenveil_client.demo.demo import Demonstration

CHOICES = [name.value for name in Algorithm if name.properties.federated]


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
    help="Trust model: central shows a site's totals to the coordinator.",
)
@click.option("--out", default=Path("demo-out"), show_default=True, type=FOLDER)
@click.option(
    "--keep", is_flag=True, help="Leave the federation running for your own studies; Ctrl-C ends it."
)
@json_option
@require_extra(EXTRAS)
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

    The coordinator and every site run in processes of their own. The records are scikit-learn's
    breast-cancer set, 569 public records of 30 measurements, divided unevenly over the sites. The run takes
    about ten seconds and stops every process. With --trust secure-aggregation the sites exchange and confirm
    their key cards first, and mask their answers. With --keep the federation keeps serving, with these
    columns as its dictionary, for `eigenveil.connect()` in Python and for other commands with --profile."""
    from eigenveil_client.analyst.display import Display
    from eigenveil_client.demo.demo import demonstrate
    from eigenveil_client.demo.layout import demo_study
    from eigenveil_client.demo.show import show_demonstration, stoppable

    if not HAS_FILE_OWNERS:
        raise RequestError(
            Code.BAD_ARGUMENT,
            "the demonstration runs a coordinator and sites, which need Linux or macOS; on Windows use WSL",
        )
    study = demo_study(sites, Algorithm(algorithm), components, epsilon, Trust(trust))
    output = errors if as_json else console  # with --json, standard output holds the result only
    log_step = partial(output.print, markup=False)
    with stoppable(), ExitStack() as display_context:
        display = display_context.enter_context(Display(output, "breast-cancer"))

        def report_result(demonstration: Demonstration) -> None:
            display_context.close()
            print_result_as(
                demonstration.value(),
                as_json,
                lambda value: show_demonstration(value, demonstration, still_serving=keep),
            )

        demonstration = demonstrate(
            study,
            out,
            log_step=lambda text: log_step(f"· {text}"),
            on_event=display.take,
            on_result=report_result if keep else None,
        )
    if not keep:
        report_result(demonstration)

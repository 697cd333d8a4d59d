"""Printed result of a demonstration, and its reaction to signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.table import Table

from eigenveil.accounting.formatting import shown_down, shown_up
from eigenveil.protocol.plan import planned_study
from eigenveil.queries import KINDS
from eigenveil.reporting.loadings import release_warnings
from eigenveil.reporting.trust import colluding
from eigenveil.study.study import Trust
from eigenveil_client.analyst.studies import components_table
from eigenveil_client.demo.demo import Demonstration
from eigenveil_common.command import console, shell_command


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP stop the demonstration as Ctrl-C does, so that no process remains."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_demonstration(value: dict[str, Any], demonstration: Demonstration, *, still_serving: bool) -> None:
    """Print the result and, if the federation still serves, the next commands."""
    document, result = demonstration.release.document, demonstration.release.result
    warnings = release_warnings(demonstration.release)
    console.print()
    if value["declined"] is None:
        console.print(components_table(result))
    console.print(_site_table(demonstration))
    console.print(document["guarantee"]["text"], markup=False)
    console.print()
    rounds = f"{value['rounds']} rounds of {value['round_ms_median']:.0f} ms (median)"
    after = "the federation keeps serving" if still_serving else "all processes stopped"
    lines = (
        f"algorithm   {value['algorithm']}, {rounds}",
        f"asked by    {value['analyst']['text']}",
        f"trust       {_trust_text(value, demonstration)}",
        _outcome(value),
        f"release     {value['release']} (signature verified)",
        f"report      {value['report']}",
        f"time        {value['seconds']:.1f} s; {after}",
    )
    next_steps = _next_steps(value["profile"]) if still_serving else ()
    for line in (*lines, *(f"warning     {text}" for text in warnings), *next_steps):
        console.print(line, markup=False, soft_wrap=True)


def _next_steps(profile: str) -> tuple[str, ...]:
    return (
        "",
        f"in Python   federation = eigenveil.connect({profile!r})",
        f"or          {shell_command('eigenveil', 'columns', '--profile', profile)}",
        "Ctrl-C ends the federation.",
    )


def _trust_text(value: Mapping[str, Any], demonstration: Demonstration) -> str:
    """Return the text about the trust model: which party saw a site's totals."""
    if value["trust"] == Trust.CENTRAL.value:
        return "central: the coordinator saw each site's totals, without noise"
    others = colluding(planned_study(demonstration.release.document["plan"]))
    no_party = "nobody saw a site's totals without noise, also not the coordinator with"
    sets = f"{value['attempts']} masked sets for {value['rounds']} rounds"
    return f"secure-aggregation: {no_party} {others}; {sets}"


def _outcome(value: Mapping[str, Any]) -> str:
    if value["declined"] is not None:
        return f"no release  {value['declined']}"
    predicted = value["predicted_sin_angle"]
    forecast = "" if predicted is None else f" (predicted {predicted:.3f})"
    accuracy = f"sine of the largest angle to the exact components: {value['sin_angle']:.3f}{forecast}"
    return f"accuracy    {accuracy}; measured because these records are public"


def _site_table(demonstration: Demonstration) -> Table:
    table = Table(title="Privacy budget of each site, by its own ledgers", title_justify="left")
    table.add_column("site")
    for heading in ("records", "epsilon spent", "epsilon left", "answers", "bytes sent"):
        table.add_column(heading, justify="right")
    for name, records in demonstration.records.items():
        ledger, egress = (demonstration.ledgers.sites[name][kind] for kind in ("ledger", "egress"))
        spent, left = shown_up(_epsilon(ledger["spent"])), shown_down(_epsilon(ledger["left"]))
        answers = sum(row["kind"] in KINDS for row in egress["rows"])
        table.add_row(name, str(records), spent, left, str(answers), f"{demonstration.sent(name):,}")
    return table


def _epsilon(amount: Mapping[str, Any]) -> float:
    """Return the epsilon of an amount as the site's own command shows it: exact if known."""
    exact = amount["epsilon_gaussian"]
    return float(amount["epsilon"] if exact is None else exact)

"""What a demonstration gave, for a person; and how signals stop it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.table import Table

from eigenveil.accounting.digits import shown_down, shown_up
from eigenveil.queries import KINDS
from eigenveil.reporting.trust import colluding
from eigenveil.study.study import Trust
from eigenveil.study.toml import study_from_dict
from eigenveil_client.analyst.releases.shown import components_table
from eigenveil_client.demo.demo import Demonstration
from eigenveil_common.command import console, typed


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP stop the demonstration as Ctrl-C does, so that nothing is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show(value: dict[str, Any], shown: Demonstration, *, kept: bool) -> None:
    """What it gave; and, of a federation that is kept, how to go on with it."""
    document = shown.document
    console.print()
    if value["declined"] is None:
        console.print(components_table(document["result"]))
    console.print(_sites(shown))
    console.print(document["guarantee"]["words"], markup=False)
    console.print()
    rounds = f"{value['rounds']} rounds of {value['round_ms_median']:.0f} ms (median)"
    after = "the federation serves" if kept else "all processes stopped"
    lines = (
        f"algorithm   {value['algorithm']}, {rounds}",
        f"asked by    {value['asked_by']['words']}",
        f"trust       {_trust(value, shown)}",
        _outcome(value),
        f"release     {value['release']} (signature verified)",
        f"report      {value['report']}",
        f"time        {value['seconds']:.1f} s; {after}",
    )
    on = _to_go_on(value["profile"]) if kept else ()
    for line in (*lines, *(f"warning     {text}" for text in document["result"]["warnings"]), *on):
        console.print(line, markup=False, soft_wrap=True)


def _to_go_on(profile: str) -> tuple[str, ...]:
    return (
        "",
        f"in Python   federation = eigenveil.connect({profile!r})",
        f"or          {typed('eigenveil', 'columns', '--profile', profile)}",
        "Ctrl-C ends the federation.",
    )


def _trust(value: Mapping[str, Any], shown: Demonstration) -> str:
    """Who saw what of a site."""
    if value["trust"] == Trust.CENTRAL.value:
        return "central: the coordinator saw each site's totals, without noise"
    study = study_from_dict(shown.document["plan"]["study"])
    return (
        "secure-aggregation: nobody saw a site's totals without noise, also not the coordinator with "
        f"{colluding(study)}; "
        f"{value['attempts']} masked sets for {value['rounds']} rounds"
    )


def _outcome(value: Mapping[str, Any]) -> str:
    if value["declined"] is not None:
        return f"no release  {value['declined']}"
    predicted = value["predicted_sin_angle"]
    forecast = "" if predicted is None else f" (predicted {predicted:.3f})"
    accuracy = f"sine of the largest angle to the exact components: {value['sin_angle']:.3f}{forecast}"
    return f"accuracy    {accuracy}; measured because these records are public"


def _sites(shown: Demonstration) -> Table:
    table = Table(title="What each site spent, by its own ledgers", title_justify="left")
    table.add_column("site")
    for heading in ("records", "epsilon spent", "epsilon left", "answers", "bytes sent"):
        table.add_column(heading, justify="right")
    for name, records in shown.records.items():
        books = shown.books.sites[name]
        left = books["ledger"]["left"]
        spent = books["ledger"]["spent"]
        answers = [row for row in books["egress"]["rows"] if row["kind"] in KINDS]
        table.add_row(
            name, str(records), shown_up(_epsilon(spent)), shown_down(_epsilon(left)),
            str(len(answers)), f"{shown.sent(name):,}",
        )  # fmt: skip
    return table


def _epsilon(amount: Mapping[str, Any]) -> float:
    """As a site's own command tells an amount: exactly where that is known."""
    exactly = amount["epsilon_gaussian"]
    return float(amount["epsilon"] if exactly is None else exactly)

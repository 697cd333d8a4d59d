"""`make docs`: write docs/reference from the code: commands, configuration, errors, metrics and public names.

Nothing there is written by hand, so that it cannot lag; a test holds the pages to what is written here today.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import click
from example_keys import entries
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import eigenveil
import eigenveil.algorithms
from eigenveil.accounting.ledger import Ledger
from eigenveil.errors import TABLE, Code, ErrorFamily
from eigenveil_client import cli
from eigenveil_client.site.commands import main as site
from eigenveil_client.site.daemon import metrics as site_metrics
from eigenveil_client.site.policy import Policy
from eigenveil_common.config import load
from eigenveil_common.storage.ledger_store import LedgerStore, LedgerTotals
from eigenveil_server import cli as coordinator
from eigenveil_server import metrics as coordinator_metrics
from eigenveil_server.admin.setup import create
from eigenveil_server.config import Config
from eigenveil_server.metrics import Metrics, _StateCollector
from eigenveil_server.process import unix_ms
from eigenveil_server.storage.database import existing_store
from eigenveil_server.storage.submissions import AnalystUsage

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
PROGRAMS: dict[str, click.Command] = {
    "eigenveil": cli.eigenveil,
    "eigenveil-site": site.group,
    "eigenveil-coordinator": coordinator.group,
}
FILES = {
    "site": "site.toml, a site's",
    "coordinator": "coordinator.toml, the coordinator's",
    "study": "study.toml, a study",
    "profile": "profile.toml, an analyst's",
    "dictionary": "a data dictionary",
}
MEANING = re.compile(r"^\| `([a-z-]+)` \| ([^|]+?) \| [A-Z_]+ \| \d+ \|$", re.MULTILINE)
FAULT = {
    ErrorFamily.REQUEST: "the request",
    ErrorFamily.PEER: "the other end",
    ErrorFamily.INTERNAL: "this end: its disk, or a defect",
}
WRITTEN = "*Written by `make docs` from the code.*"


def plain(text: str) -> str:
    """Text as Markdown shows it letter for letter, but for what stands between backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*<\[\]|$~])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def commands() -> str:
    """Every command of the three programs, with its options."""
    lines = ["# Commands", "", WRITTEN, "Every one has `--help`."]
    for program, command in PROGRAMS.items():
        for path, one, context in verify_chain(program, command, None):
            lines += ["", f"{'##' if path == program else '###'} {path}", "", *described(one, context)]
    return "\n".join(lines) + "\n"


def verify_chain(
    name: str, command: click.Command, parent: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """A command and all below it, by the words that call it."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from verify_chain(below, found, context)


def described(command: click.Command, context: click.Context) -> Iterator[str]:
    """What a command's help says, as Markdown."""
    yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    for paragraph in (command.help or "").split("\n\n"):
        yield ""
        remaining = paragraph.startswith("\b")
        yield f"```text\n{paragraph[1:].strip()}\n```" if remaining else plain(" ".join(paragraph.split()))
    records = [one.get_help_record(context) for one in command.get_params(context)]
    shown = [one for one in records if one is not None and one[1] and not one[0].endswith("--help")]
    if shown:
        yield from ("", "| option | meaning |", "|---|---|")
        yield from (f"| `{names.replace('|', chr(92) + '|')}` | {plain(about)} |" for names, about in shown)


def configuration() -> str:
    """Every key of every file, in the words of the explained examples."""
    lines = ["# Configuration", "", WRITTEN, "An unknown key is refused."]
    for name, title in FILES.items():
        text = (ROOT / "deploy" / "config" / f"{name}.example.toml").read_text()
        lines += ["", f"## {title}"]
        table = ""
        for one in entries(text):
            if one.table != table:
                lines += ["", f"### `{one.table}`"]
                table = one.table
            lines += ["", f"#### `{one.key}`", "", "```toml", one.example, "```", "", plain(one.meaning)]
    return "\n".join(lines) + "\n"


def errors() -> str:
    """Every error code, in the words of the protocol."""
    meaning = dict(MEANING.findall((ROOT / "proto" / "PROTOCOL.md").read_text()))
    lines = [
        "# Errors", "", WRITTEN,
        "A command that fails says `error [CODE]: ` and a sentence, and ends with the exit code; with",
        "`--json` the error is one object with the keys `error` and `message`. In Python the code is",
        "`error.code.value`. Besides these: 0 done, 1 a check failed, 2 wrong usage, 14 a release signed",
        "with an unknown key, 130 interrupted.",
        "", "| code | what it means | whose fault | gRPC status | exit code |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for code in Code:
        rule = TABLE[code]
        cells = (f"`{code.value}`", meaning[code.value], FAULT[rule.family], rule.status, str(rule.exit_code))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def metrics() -> str:
    """Every metric, as a scrape of both daemons' registries names it."""
    lines = ["# Metrics", "", WRITTEN, "Nothing about records or their number is in them.", ""]
    lines += ["`deploy/grafana/eigenveil.json` is a dashboard that shows all of them."]
    for title, found in (("coordinator", of_coordinator()), ("site", of_site())):
        lines += ["", f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for one in found:
            labels = {label for sample in one.samples for label in sample.labels} - {"le"}
            shown = ", ".join(f"`{label}`" for label in sorted(labels))
            lines.append(f"| `{exported(one)}` | {one.type} | {shown} | {plain(one.documentation)} |")
    return "\n".join(lines) + "\n"


def exported(one: Metric) -> str:
    """The name to query: of a counter with its ending."""
    return f"{one.name}_total" if one.type == "counter" else one.name


def of_site() -> list[Metric]:
    """What the file of a site holds, of every label one value."""
    contact = site_metrics.Contact(connections=1, disconnects=Counter(code=1), notices=Counter(outcome=1))
    text = site_metrics.metrics_text(contact, LedgerTotals.of(Ledger(Policy().budget)), 0.0).decode()
    return list(text_string_to_metric_families(text))


# Of an analyst who has submitted one study: without one the labels would not be seen.
ONE = AnalystUsage(analyst="one", studies_today=1, bytes_today=1, studies=1, bytes=1, unstarted_bytes=0)


def of_coordinator() -> list[Metric]:
    """What a new coordinator shows, of every label one value."""
    with tempfile.TemporaryDirectory() as folder:
        made = create(
            Path(folder) / "c", federation="docs", host="localhost", listen="127.0.0.1",
            port=1, enrol_port=2, budget_epsilon=1.0, budget_delta=1e-6,
        )  # fmt: skip
        config = load(made, Config)
        counted = Metrics()
        for one in set(counted.registry._names_to_collectors.values()):
            if names := getattr(one, "_labelnames", ()):  # without a sample its labels would not be seen
                one.labels(*names)  # type: ignore[attr-defined]
        store = existing_store(config)
        counted.registry.register(
            _StateCollector(config, store, LedgerStore(store.reader, config.budget, unix_ms))
        )
        with patch.object(coordinator_metrics, "analyst_usage", lambda reader, now: [ONE]):
            text = generate_latest(counted.registry).decode()
        store.close()
    families = text_string_to_metric_families(text)
    return [one for one in families if not one.name.endswith("_created")]


def python() -> str:
    """Every public name, by its docstring."""
    lines = ["# Python", "", WRITTEN, "Everything that is not here may change with any version."]
    for module in (eigenveil, eigenveil.algorithms):
        lines += ["", f"## {module.__name__}", "", "```{eval-rst}"]
        for name in sorted(module.__all__, key=str.lower):
            one = getattr(module, name)
            kind = "autoclass" if isinstance(one, type) else "autofunction"
            if not callable(one):
                kind = "automodule" if isinstance(one, ModuleType) else "autodata"
            lines += [f".. {kind}:: {module.__name__}.{name}"]
            lines += ["   :members:", ""] if kind in ("autoclass", "automodule") else [""]
        lines += ["```"]
    return "\n".join(lines) + "\n"


WRITERS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "configuration": configuration,
    "errors": errors,
    "metrics": metrics,
    "python": python,
}


def main() -> int:
    """Write every page anew."""
    PAGES.mkdir(exist_ok=True)
    for name, write in WRITERS.items():
        (PAGES / f"{name}.md").write_text(write())
    return 0


if __name__ == "__main__":
    sys.exit(main())

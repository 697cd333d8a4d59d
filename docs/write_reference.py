"""`make docs-site`: write docs/reference from the code: commands, keys, errors, metrics and public names.

These pages are part of the built site and not kept in git. A test writes them too and misses no name in them.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import click
import tomli_w
from example_keys import Entry, entries
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import eigenveil
import eigenveil.algorithms
from eigenveil.accounting.ledger import Ledger
from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.errors import Code, InternalError, PeerError, RequestError
from eigenveil.study.checks import to_plain
from eigenveil.study.study import Column, Federation, Study
from eigenveil_client import cli
from eigenveil_client.connection.proxy import ProxyRule
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.commands import main as site
from eigenveil_client.site.config import EngineConfig, SiteConfig
from eigenveil_client.site.daemon import metrics as site_metrics
from eigenveil_client.site.policy import Policy
from eigenveil_common.config import keys, load
from eigenveil_common.notify.config import Notify
from eigenveil_common.storage.ledger_store import LedgerStore, LedgerTotals
from eigenveil_server import cli as coordinator
from eigenveil_server import metrics as coordinator_metrics
from eigenveil_server.admin.setup import create
from eigenveil_server.config import Config, ConsoleConfig
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
DATACLASSES: dict[tuple[str, str], type] = {
    ("site", ""): SiteConfig,
    ("site", "[records]"): RecordsConfig,
    ("site", "[engine]"): EngineConfig,
    ("site", "[notify]"): Notify,
    ("site", "[column.NAME]"): ColumnRule,
    ("coordinator", ""): Config,
    ("coordinator", "[notify]"): Notify,
    ("coordinator", "[console]"): ConsoleConfig,
    ("study", ""): Study,
    ("study", "[privacy]"): Study,
    ("study", "[records]"): Study,
    ("study", "[federation]"): Federation,
    ("study", "[[columns]]"): Column,
    ("profile", ""): ProxyRule,
    ("dictionary", ""): Dictionary,
    ("dictionary", "[[columns]]"): DictionaryColumn,
}
Option = tuple[str, str]  # names with the metavar, and the text of the help
SHORT = 4  # words of a first sentence that says too little
LONG = 36  # words of a command's help of which only the first paragraph is shown
COMMON = 2  # an option of so many commands of a program is explained once
OPTION_NAMES = re.compile(r"(?:-[a-z], )?--[^ ]+")
SENTENCE_END = re.compile(r"(?<=[a-z)\]\"`0-9][.!?]) +(?=[A-Z\"`])")
SHARED_END = re.compile(r"(?<=[.]) +(?=[A-Z`]|[a-z_]+: )")  # in an explanation of several keys
MEANING = re.compile(r"^\| `([a-z-]+)` \| ([^|]+?) \| [A-Z_]+ \| \d+ \|$", re.MULTILINE)
FAULT = {
    RequestError: "the request",
    PeerError: "the other end",
    InternalError: "this end: its disk, or a defect",
}
WRITTEN = "*Written from the code of this version.*"


def plain(text: str) -> str:
    """Text as Markdown shows it letter for letter, but for what stands between backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*<\[\]|$~])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def commands() -> str:
    """Every command of the three programs, with its options."""
    lines = ["# Commands", "", WRITTEN, "`--help` after any command prints its whole explanation."]
    for program, command in PROGRAMS.items():
        found = [(path, one, options_of(one, context)) for path, one, context in walk(program, command, None)]
        times = Counter(option for _, _, options in found for option in options)
        common = [option for option in times if times[option] >= COMMON]
        leaves = {path: options for path, one, options in found if not isinstance(one, click.Group)}
        general = {option: exceptions(option, leaves) for option in common if 2 * times[option] > len(leaves)}
        for path, one, options in found:
            lines += ["", f"{'##' if path == program else '###'} {path}", "", summary(one)]
            if path == program:
                lines += option_table([*options, *((names, about + general.get((names, about), ""))
                                                   for names, about in common)])  # fmt: skip
                continue
            lines += option_table(option for option in options if option not in common)
            also = [
                f"`{names_of(option)}`" for option in options if option in common and option not in general
            ]
            lines += ["", f"Also {', '.join(also)}."] if also else []
    return "\n".join(lines) + "\n"


def exceptions(option: Option, leaves: dict[str, list[Option]]) -> str:
    """The sentence that an option belongs to every command but some."""
    without = [f"`{path.split(' ', 1)[1]}`" for path, options in leaves.items() if option not in options]
    return f" Every command has it, but {', '.join(without)}."


def walk(
    name: str, command: click.Command, parent: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """A command and all below it, each with its path and context."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from walk(below, found, context)


def options_of(command: click.Command, context: click.Context) -> list[Option]:
    """The options of a command, with the texts of its help."""
    records = [one.get_help_record(context) for one in command.get_params(context)]
    return [one for one in records if one is not None and one[1] and not one[0].endswith("--help")]


def names_of(option: Option) -> str:
    """The names of an option, without its metavar."""
    found = OPTION_NAMES.match(option[0])
    return found[0] if found else option[0]


def summary(command: click.Command) -> str:
    """The arguments of a command, and its help: of a long one the first paragraph."""
    context = click.Context(command)
    names = [one.make_metavar(context) for one in command.params if isinstance(one, click.Argument)]
    arguments = f"`{' '.join(names)}`: " if names else ""
    text = (command.help or "").replace("\b\n", "")
    whole = text if len(text.split()) <= LONG else text.split("\n\n")[0]
    return arguments + plain(" ".join(whole.split()))


def option_table(options: Iterable[Option]) -> list[str]:
    """A table of options, each with its help, default and range."""
    rows = []
    for names, about in options:
        shown = names.replace(" RANGE", "").replace("|", r"\|")
        rows.append(f"| `{shown}` | {plain(' '.join(about.split()))} |")
    return ["", "| option | meaning |", "|---|---|", *rows] if rows else []


def configuration() -> str:
    """Every key of every file, with its default and the first sentence of the explained example."""
    lines = ["# Configuration", "", WRITTEN, "An unknown key is refused. A key without a default is empty"]
    lines += ["when left out. The example of each file explains its keys in full."]
    shown: dict[tuple[str, str], str] = {}
    for name, title in FILES.items():
        text = (ROOT / "deploy" / "config" / f"{name}.example.toml").read_text()
        lines += ["", f"## {title}", "", f"[Example](../../deploy/config/{name}.example.toml)"]
        for table, found in groupby(entries(text), key=lambda one: one.table):
            lines += ["", f"### `{table}`"] if table else []
            lines += ["", "| key | default | meaning |", "|---|---|---|"]
            for key, default, meaning in key_rows(list(found), DATACLASSES.get((name, table))):
                first = shown.setdefault((key, meaning), name)
                again = first != name and len(meaning.split()) > SHORT
                lines += [f"| `{key}` | {default} | {f'As in {first}.toml.' if again else meaning} |"]
    return "\n".join(lines) + "\n"


def key_rows(found: list[Entry], kind: type | None) -> Iterator[tuple[str, str, str]]:
    """Each key of a table, its default and meaning. Keys with one explanation refer to the first of them."""
    known = keys(kind) if kind else {}
    shared, shown = Counter(one.meaning for one in found), dict[str, str]()
    for one in found:
        default = default_of(known[one.key]) if one.key in known else ""
        if shared[one.meaning] > 1:
            shown.setdefault(one.meaning, one.key)
            meaning = shared_meaning(one, first=shown[one.meaning] == one.key) or one.meaning
        else:
            meaning = own_meaning(one, stated=bool(default))
        earlier = shown.setdefault(meaning, one.key)
        yield one.key, default, plain(meaning) if earlier == one.key else f"See `{earlier}`."


def own_meaning(one: Entry, *, stated: bool) -> str:
    """The first sentence on a key; without a stated default also the sentence on leaving it out."""
    first, *others = SENTENCE_END.split(one.meaning)
    if len(first.split()) < SHORT and others:
        first = f"{first} {others.pop(0)}"
    left_out = [text for text in others if re.search("the default|left out", text.lower())]
    return " ".join([first, *([] if stated else left_out[:1])])


def shared_meaning(one: Entry, *, first: bool) -> str:
    """Part of a shared explanation about this key; with `first` also its beginning."""
    sentences = SHARED_END.split(one.meaning)
    own = [text for text in sentences if re.search(rf"`{one.key}`|^{one.key}:", text)]
    if first and sentences[0] not in own and len(sentences[0].split()) >= SHORT:
        return " ".join([sentences[0], *own])
    return " ".join(text.removeprefix(f"{one.key}: ") for text in own)


def default_of(one: Field[Any]) -> str:
    """The default of a key as TOML; "required" if there is none."""
    if one.default is MISSING:
        return "required"
    value = to_plain(one.default)
    if value in (None, "", []):
        return ""
    if isinstance(value, list):
        return f"`[{', '.join(map(toml_value, value))}]`"
    return f"`{toml_value(value)}`"


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    return tomli_w.dumps({"key": value}).removeprefix("key = ").strip()


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
        cells = (f"`{code.value}`", meaning[code.value], FAULT[code.family], code.status, str(code.exit_code))
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
    """Metrics in the file of a site, of every label one value."""
    contact = site_metrics.Contact(connections=1, disconnects=Counter(code=1), notices=Counter(outcome=1))
    text = site_metrics.metrics_text(contact, LedgerTotals.of(Ledger(Policy().budget)), 0.0).decode()
    return list(text_string_to_metric_families(text))


# Of an analyst who has submitted one study: without one the labels would not be seen.
ONE = AnalystUsage(analyst="one", studies_today=1, bytes_today=1, studies=1, bytes=1, unstarted_bytes=0)


def of_coordinator() -> list[Metric]:
    """Metrics of a new coordinator, of every label one value."""
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

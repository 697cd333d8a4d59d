"""Names that others write down: options of commands, keys of configurations, metrics, events of the log,
error codes with their exit codes, fields of messages, keys of statements. `names` collects those of this
tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from eigenveil.accounting.checkpoint import Checkpoint
from eigenveil.accounting.zcdp import NO_COST
from eigenveil.dictionary.formats import DictionaryStatement
from eigenveil.errors import Code
from eigenveil.key_cards import AnalystKeyCard, SiteKeyCard
from eigenveil.protocol.authorities import AuthorityList
from eigenveil.protocol.plan import PLAN_KEYS
from eigenveil.protocol.rounds import RoundStatement
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.secure_aggregation.study_keys import StudyKey
from eigenveil.signatures import Extensible
from eigenveil.study_authorization import StudyAuthorization
from eigenveil_client.cli import eigenveil
from eigenveil_client.site.commands.main import group as site
from eigenveil_client.site.daemon.metrics import Contact, metrics_text
from eigenveil_common.log import FIELDS
from eigenveil_common.storage.ledger_store import LedgerTotals
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server import metrics as server_metrics
from eigenveil_server.cli import group as coordinator
from eigenveil_server.metrics import Metrics
from tests.repo.tree import ROOT, files

GROUPS = {"eigenveil": eigenveil, "eigenveil-site": site, "eigenveil-coordinator": coordinator}
STATEMENTS: tuple[type[Extensible], ...] = (
    AnalystKeyCard, Attempt, AuthorityList, Checkpoint, DictionaryStatement, RoundStatement, SiteKeyCard,
    StudyAuthorization, StudyKey,
)  # fmt: skip
PRODUCT = ("core", "common", "client", "server")
LINE = re.compile(r"^(?:# )?(?:\[+(?P<table>[a-z_.-]+)\]+|(?P<key>[a-z_]+) = )", re.MULTILINE)


def commands() -> Iterator[str]:
    """Yield each command with each of its options and arguments, such as `eigenveil-site check --study`."""
    for program, group in GROUPS.items():
        yield from _parameters(program, group)


def _parameters(path: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _parameters(f"{path} {name}", inner)
        return
    yield path
    for parameter in command.params:
        words = (
            parameter.opts if isinstance(parameter, click.Option) else [str(parameter.human_readable_name)]
        )
        yield from (f"{path} {word}" for word in words)


def settings() -> Iterator[str]:
    """Yield each key of the example of each configuration, with its file and table."""
    for path in sorted((ROOT / "deploy" / "config").glob("*.example.toml")):
        table = ""
        for found in LINE.finditer(path.read_text()):
            if found["table"]:
                table = f"{found['table']}."
            else:
                yield f"{path.name.split('.')[0]}.toml {table}{found['key']}"


def metrics() -> Iterator[str]:
    """Yield each metric of a coordinator and of a site."""
    for metric in Metrics().registry.collect():
        yield f"{metric.name} {metric.type}"
    for node in ast.walk(ast.parse(Path(server_metrics.__file__).read_text())):
        if isinstance(node, ast.Constant) and str(node.value).startswith("eigenveil_"):
            yield str(node.value)
    for line in (
        metrics_text(Contact(), LedgerTotals(*(NO_COST,) * 3, True, True, "", 0), 0.0).decode().splitlines()
    ):
        if line.startswith("# TYPE "):
            yield line.removeprefix("# TYPE ")


def events() -> Iterator[str]:
    """Yield each name of an event that the product logs."""
    for path in files("*.py", *PRODUCT):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("event", "log_error"):
                yield from (
                    str(word.value) for word in ast.walk(node.args[0]) if isinstance(word, ast.Constant)
                )


def fields() -> Iterator[str]:
    """Yield each field of each message, with its number and type, and each call."""
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        for one in message.fields:
            kind = one.message_type.name if one.message_type else one.type
            yield f"{message.name}.{one.name} = {one.number}: {kind}{' repeated' if one.is_repeated else ''}"
    for enum in pb.DESCRIPTOR.enum_types_by_name.values():
        yield from (f"{value.name} = {value.number}" for value in enum.values)
    for service in pb.DESCRIPTOR.services_by_name.values():
        for call in service.methods:
            yield f"{service.name}.{call.name}({call.input_type.name}) -> {call.output_type.name}"


def keys() -> Iterator[str]:
    """Yield each key of a plan, and of each statement with its format."""
    yield from _paths("plan", PLAN_KEYS)
    for kind in STATEMENTS:
        yield from (f"{kind.format} {key}" for key in kind.known())


def _paths(before: str, tree: Mapping[str, Any]) -> Iterator[str]:
    for key, inner in tree.items():
        yield f"{before}.{key}"
        yield from _paths(f"{before}.{key}", inner or {})


KINDS = {
    "commands": commands, "settings": settings, "metrics": metrics, "events": events,
    "log fields": lambda: iter(FIELDS), "codes": lambda: (f"{one.value} {one.exit_code}" for one in Code),
    "messages": fields, "keys": keys,
}  # fmt: skip


def names() -> dict[str, list[str]]:
    """Return all names of this tree, by kind, sorted."""
    return {kind: sorted({str(name) for name in found()}) for kind, found in KINDS.items()}

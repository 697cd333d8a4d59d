"""JSON Schemas of what commands print with `--json` (docs/commands.schema.json): every output of a command
that a test runs in its process is checked against them.

    EIGENVEIL_TESTS_RECORD=FILE make test ...           also writes every output into FILE
    python -m tests.compat.outputs FILE                 extends the schemas to what is in FILE

Extension never rejects an earlier output; a key that is sometimes absent becomes optional."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click

from tests.repo.tree import ROOT

SCHEMA = ROOT / "docs" / "commands.schema.json"
RECORD = os.environ.get("EIGENVEIL_TESTS_RECORD", "")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Objects whose keys are names of a federation, a study or records, by the key that has them.
MAPS = frozenset({
    "absent", "analyst_keys", "applicant", "arrays", "budgets", "by_analyst", "by_rule", "bytes_up_per_site",
    "columns_by_site", "consent", "counts", "declines", "files", "fingerprints", "micro_rho_per_site",
    "offered", "reserved", "sites", "spent_by_study", "studies_by_state", "studies_left", "trust_by_site",
})  # fmt: skip
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
Schema = dict[str, Any]


class Checked:
    """The module `json` for `eigenveil_common.command`: it checks each printed value against its schema."""

    def __getattr__(self, name: str) -> Any:
        return getattr(json, name)

    def dumps(self, value: Any, **options: Any) -> str:
        context = click.get_current_context(silent=True)
        if context is not None:
            # Click takes pytest for the program where a test has not named one.
            check(context.command_path.removeprefix("python -m pytest."), json.loads(json.dumps(value)))
        return json.dumps(value, **options)


def check(command: str, value: Any) -> None:
    """Check an output of a command, or write it down."""
    if RECORD:
        with Path(RECORD).open("a") as file:
            file.write(json.dumps([command, value]) + "\n")
        return
    form = validators().get(command)
    assert form is not None, f"{command} prints JSON and has no schema: see {Path(__file__).name}"
    problems = [f"{error.json_path}: {error.message}"[:300] for error in form.iter_errors(value)]
    assert not problems, f"{command}: {problems}"


@cache
def published() -> Schema:
    found: Schema = json.loads(SCHEMA.read_text())
    return found


@cache
def validators() -> Mapping[str, Any]:
    from jsonschema import Draft202012Validator  # takes two seconds: collecting tests need not wait

    return {name: Draft202012Validator(one) for name, one in published()["$defs"].items()}


def schema_of(values: Sequence[Any], key: str = "") -> Schema:
    """The schema of some values at one place."""
    parts: list[Schema] = []
    objects = [one for one in values if isinstance(one, dict)]
    lists = [one for one in values if isinstance(one, list)]
    types = {TYPES[type(one)] for one in values if type(one) in TYPES}
    if "number" in types:
        types.discard("integer")
    if objects:
        parts.append(_object(objects, key))
    if lists:
        items = [item for one in lists for item in one]
        parts.append({"type": "array", **({"items": schema_of(items, key)} if items else {})})
    parts += [{"type": one} for one in sorted(types)]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _object(objects: Sequence[Mapping[str, Any]], key: str) -> Schema:
    if key in MAPS:
        inner = [value for one in objects for value in one.values()]
        return {"type": "object", **({"additionalProperties": schema_of(inner)} if inner else {})}
    names = sorted({name for one in objects for name in one})
    always = [name for name in names if all(name in one for one in objects)]
    properties = {name: schema_of([one[name] for one in objects if name in one], name) for name in names}
    return {"type": "object", "properties": properties, "required": always}


def merged(first: Schema, second: Schema) -> Schema:
    """Return a schema that accepts every value that one of the two accepts."""
    kinds: dict[str, Schema] = {}
    for one in (*_parts(first), *_parts(second)):
        kinds[one["type"]] = _both(kinds[one["type"]], one) if one["type"] in kinds else one
    if "number" in kinds:
        kinds.pop("integer", None)
    parts = [kinds[name] for name in sorted(kinds, key=lambda name: (name not in ("object", "array"), name))]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _parts(form: Schema) -> Iterable[Schema]:
    return form.get("anyOf", [form]) if form else []


def _both(first: Schema, second: Schema) -> Schema:
    out = dict(first)
    for name in ("items", "additionalProperties"):
        if name in first or name in second:
            out[name] = merged(first.get(name, {}), second.get(name, {}))
    if "properties" in first or "properties" in second:
        mine, other = first.get("properties", {}), second.get("properties", {})
        out["properties"] = {
            name: merged(mine[name], other[name]) if name in mine and name in other else (mine | other)[name]
            for name in sorted(mine | other)
        }
        out["required"] = sorted(set(first["required"]) & set(second["required"]))
    return out


def extended(before: Mapping[str, Schema], recorded: Iterable[tuple[str, Any]]) -> dict[str, Schema]:
    """Schemas by command, extended to these outputs."""
    outputs: dict[str, list[Any]] = {}
    for command, value in recorded:
        outputs.setdefault(command, []).append(value)
    new = {command: schema_of(values) for command, values in outputs.items()}
    return {
        name: merged(before[name], new[name])
        if name in before and name in new
        else (new.get(name) or before[name])
        for name in sorted({*before, *new})
    }


def main(path: Path) -> None:
    """Extend the published schemas to the outputs in a file."""
    before = published()["$defs"] if SCHEMA.exists() else {}
    recorded = [tuple(json.loads(line)) for line in path.read_text().splitlines()]
    about = {
        "$schema": DIALECT,
        "title": "What commands of eigenveil print with --json, by command",
        "description": "Further keys are allowed: a later version may print more. An error is one object "
        "with `error`, its code, and `message`.",
    }
    forms = extended(before, recorded)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(form)}" for name, form in forms.items())
    SCHEMA.write_text(f'{json.dumps(about, indent=1)[:-2]},\n "$defs": {{\n{lines}\n }}\n}}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))

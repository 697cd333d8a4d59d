"""Schemas of what commands print: an output with another type, or without a key, does not fit; one with a
further key does."""

from __future__ import annotations

from typing import Any

import click
import pytest

from eigenveil_common import command
from tests.compat import outputs
from tests.compat.names import GROUPS
from tests.compat.outputs import extended, published, schema_of, validators

FIRST: dict[str, Any] = {
    "rows": 3,
    "head": "ab",
    "sites": {"anna": 1.5},
    "list": [{"a": 1}, {"a": 2, "b": None}],
}


def fits(form: Any, value: Any) -> bool:
    from jsonschema import Draft202012Validator

    return bool(Draft202012Validator(form).is_valid(value))


def test_a_schema_is_what_its_outputs_have_in_common() -> None:
    form = extended({}, [("c", FIRST), ("c", FIRST | {"head": None, "more": True})])["c"]
    for value in (FIRST, FIRST | {"of a later version": 1}, FIRST | {"sites": {"zoe": 2}}):
        assert fits(form, value)
    for name in FIRST:
        assert not fits(form, {key: value for key, value in FIRST.items() if key != name}), name
    changes: list[dict[str, Any]] = [
        {"rows": "3"}, {"head": 3}, {"sites": []}, {"sites": {"zoe": "x"}}, {"list": [{"b": 1}]},
    ]  # fmt: skip
    for change in changes:
        assert not fits(form, FIRST | change), change
    assert extended({"c": form}, [("c", FIRST)])["c"] == form, "what is known changes nothing"
    wider = extended({"c": form}, [("c", FIRST | {"rows": 0.5})])["c"]
    assert fits(wider, FIRST)
    assert fits(wider, FIRST | {"rows": 0.5})


def test_the_published_schemas_are_schemas_of_commands_that_are_there() -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(published())
    for path in validators():
        program, *words = path.split()
        found: click.Command = GROUPS[program]
        for word in words:
            assert isinstance(found, click.Group)
            found = found.commands[word]
        assert any("--json" in parameter.opts for parameter in found.params), path


def test_an_output_of_a_command_is_checked_where_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Any]] = []
    monkeypatch.setattr(outputs, "check", lambda path, value: seen.append((path, value)))

    @click.command("a-command")
    def printing() -> None:
        command.print_result({"a": 1}, True, "")

    printing.main(args=[], prog_name="a-command", standalone_mode=False)
    assert seen == [("a-command", {"a": 1})]
    assert schema_of([{"a": 1}])["required"] == ["a"]

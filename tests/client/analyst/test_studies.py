"""What the commands about studies ask a person before they sign. [R31]"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import click
import pytest

from eigenveil.errors import Code
from eigenveil.study.toml import draft_from_toml
from eigenveil_client.analyst import federation, studies
from tests.support import refused

DRAFT = 'dictionary = "{}"\ncolumns = ["age"]\n'


@pytest.mark.parametrize(("answer", "query"), [(True, 1), (False, 1)])
def test_a_person_is_asked_before_anything_is_signed(answer: bool, query: int) -> None:
    result: list[str] = []
    with mock.patch.object(click, "confirm", return_value=answer) as confirm:
        notify = studies.signature_prompt(result, yes=False)
        if answer:
            notify("You sign it")
        else:
            with refused(Code.CONFLICT, "not signed and not submitted"):
                notify("You sign it")
    assert (result, confirm.call_count) == (["You sign it"], query)


def test_whoever_agreed_beforehand_is_shown_it_all_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    result: list[str] = []
    with mock.patch.object(click, "confirm", side_effect=AssertionError):
        studies.signature_prompt(result, yes=True)("You sign it")
    assert (result, "You sign it" in capfd.readouterr().err) == (["You sign it"], True)


@pytest.mark.parametrize(("terminal", "as_json"), [(False, False), (True, True), (False, True)])
def test_where_nobody_can_be_asked_the_signature_must_be_agreed_to(terminal: bool, as_json: bool) -> None:
    with mock.patch("sys.stdin") as stdin:
        stdin.isatty.return_value = terminal
        studies.check_can_sign(yes=True, as_json=as_json)
        with pytest.raises(click.UsageError, match="add --yes"):
            studies.check_can_sign(yes=False, as_json=as_json)
        stdin.isatty.return_value = True
        studies.check_can_sign(yes=False, as_json=False)


def test_bounds_of_the_federation_s_dictionary_are_the_coordinator_s(tmp_path: Path) -> None:
    shipped = federation.shipped()
    with mock.patch.object(federation, "find_dictionary", return_value=shipped):
        for named, message in ((federation.FEDERATION, True), (shipped.name, False)):
            source = federation.resolve_study(draft_from_toml(DRAFT.format(named)), tmp_path, None).source
            assert f"{shipped.name}, version {shipped.version}" in source
            assert ("as its coordinator sent" in source) is message

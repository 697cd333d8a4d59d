"""The console's page of the mapping: what is shown, and changes by its form alone."""

from __future__ import annotations

from eigenveil_client.site.config import load
from tests.client.site.commands.console.rig import Rig

PATH = "/mapping"


def mapped(rig: Rig) -> dict[str, str]:
    return {rule.name: rule.header for rule in load(rig.config_file).column}


def test_a_column_is_set_and_removed_by_the_form(rig: Rig) -> None:
    browser = rig.browser()
    assert "Your columns" in browser.get(PATH).text
    form = {"csrf": browser.csrf(PATH), "header": "age", "column": "age", "unit": ""}
    assert browser.post(PATH, form).status == 303
    assert mapped(rig) == {"age": "age"}
    assert "100 %" in browser.get(PATH).text
    assert browser.post(PATH, {"csrf": browser.csrf(PATH), "remove": "age"}).status == 303
    assert mapped(rig) == {}


def test_nobody_else_changes_a_mapping(rig: Rig) -> None:
    browser = rig.browser()
    form = {"csrf": browser.csrf(PATH), "header": "age", "column": "age"}
    assert browser.post(PATH, form | {"csrf": "guessed"}).status == 403
    assert browser.post(PATH, form, origin="http://127.0.0.1:9999").status == 403
    for wrong in ({"column": "nothing"}, {"header": "nothing"}, {"header": ""}, {"unit": "kg"}):
        assert browser.post(PATH, form | wrong).status == 400
    assert mapped(rig) == {}

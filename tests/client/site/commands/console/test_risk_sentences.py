"""Every page with a decision shows every sentence about the risk of a study, in each language."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from eigenveil_client.site import inference_risk
from tests.client.site.command_line import site
from tests.client.site.commands.console.rig import rigged
from tests.client.site.commands.console.test_console import REFUSED, STUDIES, changed, told


@pytest.mark.parametrize("name", STUDIES)
def test_every_page_with_a_decision_has_every_sentence_in_every_language(tmp_path: Path, name: str) -> None:
    rig, plan = rigged(tmp_path), changed(name)
    rig.receive(plan)
    sentences = inference_risk.inference_risk_of(plan).sentences
    for language in ("en", "de"):
        browser = rig.browser(language)
        for page in ("", "/sheet", *(() if name in REFUSED else ("/approve",))):
            shown = html.unescape(browser.get(f"/studies/{plan.digest}{page}").text)
            assert [one.text for one in sentences if told(one, language) not in shown] == []
    message = " ".join(site(rig.config_file, "explain", plan.digest[:12]).out.split())
    assert all(" ".join(one.english.split()) in message for one in sentences)

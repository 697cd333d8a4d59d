"""What is said of one patient's odds is the same, with all that it rests on, wherever somebody agrees."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.explain import largest_inference_odds
from eigenveil.study.study import Federation, Trust
from eigenveil_client.site.commands.console.program import languages
from eigenveil_client.site.inference_risk import (
    ADVERSARY_KNOWLEDGE,
    CENTRAL_CAVEAT,
    PUBLIC_NUMBER,
    ROWS_CAVEAT,
    Sentence,
    inference_risk_of,
)
from tests.client.site.command_line import site
from tests.client.site.commands.console.rig import rigged, study_plan
from tests.client.site.support import SITE, a_plan

SITES = (SITE, "hospital-b", "hospital-c", "hospital-d")
STUDIES: dict[str, dict[str, Any]] = {
    "central": {},
    "replace-one": {"neighbours": Neighbours.REPLACE_ONE},
    "at two sites": {"max_sites_per_person": 2},
    "grouped rows": {"person_column": "patient"},
    "masked": {
        "trust": Trust.SECURE_AGGREGATION, "colluding": 2, "federation": Federation(sites=SITES, quorum=3)
    },
}  # fmt: skip


REFUSED = ("grouped rows", "masked")  # by a rule of this site, so there is no page to agree on


def changed(name: str) -> Plan:
    return a_plan(replace(study_plan().study, **STUDIES[name]), submission="odds")


def told(sentence: Sentence, language: str) -> str:
    said = languages().translator(language)(sentence.text, **sentence.values)
    return said if sentence.number is None else f'<strong class="big">{sentence.number}</strong> {said}'


@pytest.mark.parametrize("name", STUDIES)
def test_every_page_with_a_decision_has_every_sentence_in_every_language(tmp_path: Path, name: str) -> None:
    rig, plan = rigged(tmp_path), changed(name)
    rig.receive(plan)
    sentences = inference_risk_of(plan).sentences
    for language in ("en", "de"):
        browser = rig.browser(language)
        for page in ("", "/sheet", *(() if name in REFUSED else ("/approve",))):
            shown = html.unescape(browser.get(f"/studies/{plan.digest}{page}").text)
            assert [one.text for one in sentences if told(one, language) not in shown] == []
    said = " ".join(site(rig.config_file, "explain", plan.digest[:12]).out.split())
    assert all(" ".join(one.english.split()) in said for one in sentences)


def test_the_sentences_name_what_the_number_rests_on() -> None:
    for name in STUDIES:
        plan = changed(name)
        odds, texts = inference_risk_of(plan), [one.text for one in inference_risk_of(plan).sentences]
        assert odds.right - 1 < 100 * largest_inference_odds(plan) <= odds.right
        assert ADVERSARY_KNOWLEDGE in texts
        assert (PUBLIC_NUMBER in texts) == (name == "replace-one") == (not odds.membership)
        assert (ROWS_CAVEAT in texts) == (name != "grouped rows") == (not odds.persons)
        assert (CENTRAL_CAVEAT in texts) == (name != "masked") == (odds.colluders is None)
        assert odds.sites == plan.study.max_sites_per_person
        values = [value for one in odds.sentences for value in one.values.values()]
        assert odds.sites in values
        assert odds.colluders in (None, 2)
        assert odds.colluders is None or odds.colluders in values

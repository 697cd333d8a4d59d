"""The site's page without a browser: decisions are the commands', and nobody else's."""

from __future__ import annotations

import html
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.protocol.plan import Plan
from eigenveil.queries import NAMES
from eigenveil.reporting.explain import budget_inference_odds, largest_inference_odds
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.applicant import LABELS, Applicant
from eigenveil.study.study import Federation, Trust
from eigenveil_client.site import inference_risk
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.console import labels, program
from eigenveil_client.site.commands.console.consent_summary import consent_summary
from eigenveil_client.site.commands.console.program import languages
from eigenveil_client.site.config import load
from eigenveil_client.site.roster.analysts import SIGNATURE_LABEL, SIGNATURE_TEXT, SignatureStatus
from eigenveil_client.site.state.egress import DECLINE, READY
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store_access import (
    OUTDATED,
    exclusive_lock,
    note_configuration,
    open_site_store,
)
from tests.client.site.commands.console.rig import Rig, rigged, stated_plan, study_plan
from tests.client.site.support import SITE, Patch, a_plan
from tests.common.web.asgi import Browser

HOSTILE = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
NAME = "Dr. Berta Klug"


def about(rig: Rig, act: str = "") -> str:
    return f"/studies/{rig.plan.digest}{act}"


def every_page(rig: Rig) -> list[str]:
    acts = ("", "/sheet", "/approve", "/decline", "/withdraw")
    rest = (
        "/",
        "/sent",
        "/columns",
        f"/columns?study={rig.plan.digest}",
        "/mapping",
        "/budget",
        "/connection",
    )
    return [*rest, *(about(rig, act) for act in acts)]


def decide(browser: Browser, rig: Rig, act: str, **form: str) -> int:
    secret = browser.csrf(about(rig, f"/{act}"))
    return browser.post(about(rig, f"/{act}"), {"csrf": secret, "by": NAME} | form).status


def test_the_page_of_the_columns_names_lost_lines_and_cells(rig: Rig) -> None:
    with rig.stage.records.open("a") as file:
        file.write(f"1,2,3,{HOSTILE}\n" + "1,2,3\n" * 3)
    browser = rig.browser()
    shown = browser.get("/columns").text
    assert "64 lines, of which 3 are lost." in shown
    assert "Lines that repeat an earlier one: 2." in shown
    assert "Too few cells" in shown
    assert "line 63, line 64, line 65" in shown
    assert ESCAPED in shown
    assert HOSTILE not in shown
    assert "no study is answered" not in shown
    with rig.config_file.open("a") as file:
        file.write("max_lost_lines = 2\n")
    assert "So many lines are lost that no study is answered." in browser.get("/columns").text


def test_an_error_of_the_records_does_not_ask_for_the_form_again(rig: Rig) -> None:
    browser, path, again = rig.browser(), about(rig, "/approve"), "send the form again"
    secret = browser.csrf(path)
    nameless = browser.post(path, {"csrf": secret})
    with rig.stage.records.open("a") as file:
        file.write("1\n" * 20)
    lost = browser.post(path, {"csrf": secret, "by": NAME})
    assert (nameless.status, lost.status) == (400, 400)
    assert ("max_lost_lines" in lost.text, again in lost.text, again in nameless.text) == (True, False, True)


def test_pages_say_that_the_daemon_runs_with_older_settings(rig: Rig) -> None:
    browser, before = rig.browser(), load(rig.config_file)
    with exclusive_lock(before.state) as lock:
        note_configuration(lock, before)
        for outdated in (False, True):
            pages = ("/", about(rig), "/mapping")
            assert {OUTDATED in browser.get(path).text.replace("The d", "the d") for path in pages} == {
                outdated
            }
            with rig.config_file.open("a") as file:
                file.write("max_lost_lines = 2\n")


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_is_shown_before_and_after_an_answer(rig: Rig, language: str) -> None:
    browser = rig.browser(language)
    for path in every_page(rig):
        assert browser.get(path).status == 200, path
    with open_site_store(rig.stage.config) as store:
        assert (store.egress.rows(), store.ledger.ledger.size) == ([], 0), "looking is not deciding"
    assert rig.seen().status is ConsentStatus.PENDING
    assert decide(browser, rig, "approve") == 303
    rig.answer()
    for path in (*every_page(rig), "/sent/0"):
        answer = browser.get(path)
        assert answer.status == 200, path
        assert f'<html lang="{language}">' in answer.text


def test_withdrawing_frees_what_was_not_spent(rig: Rig) -> None:
    browser = rig.browser()
    decide(browser, rig, "approve")
    rig.answer()
    assert decide(browser, rig, "withdraw") == 303
    assert rig.seen().status is ConsentStatus.WITHDRAWN
    with open_site_store(rig.stage.config) as store:
        ledger = store.ledger.ledger
        assert 0 < ledger.committed().micro_rho == ledger.spent.micro_rho < rig.plan.micro_rho


@pytest.mark.parametrize(
    "form",
    [
        {"by": ""}, {"by": " "}, {"by": "x" * 101}, {"by": "two\nlines"}, {"reason": "other"}, {"reason": ""},
        {"text": "x" * 301}, {"text": "right\u202eto left"},
    ],
)  # fmt: skip
def test_an_invalid_decision_is_refused(rig: Rig, form: dict[str, str]) -> None:
    assert decide(rig.browser(), rig, "decline", **({"reason": "purpose"} | form)) == 400
    assert rig.seen().status is ConsentStatus.PENDING


@pytest.mark.parametrize("act", ["approve", "decline", "withdraw"])
def test_a_decision_needs_session_csrf_token_and_origin(rig: Rig, act: str) -> None:
    inside, path = rig.browser(), about(rig, f"/{act}")
    form = {"csrf": inside.csrf(path), "by": NAME, "reason": "purpose"}
    assert Browser(app=inside.app).post(path, form).status == 401  # another user of this machine
    assert inside.post(path, form | {"csrf": "guessed"}).status == 403
    assert inside.post(path, form, origin=None).status == 403
    assert inside.post(path, form, origin="http://127.0.0.1:9999").status == 403
    assert inside.post(path, form, host="evil.example:8000").status == 421
    assert inside.get(path + "?by=x").status == 200
    assert rig.seen().status is ConsentStatus.PENDING


def test_every_page_but_the_way_in_and_the_style_wants_a_session(rig: Rig) -> None:
    outside = Browser(app=rig.browser().app)
    for path in (*every_page(rig), "/sent/0", "/connection/checked"):
        assert outside.get(path).status == 401, path
    assert outside.get("/static/site.css").status == 200


def test_a_study_of_another_digest_or_decided_before_is_not_decided(rig: Rig) -> None:
    browser = rig.browser()
    form = {"csrf": browser.csrf(about(rig, "/approve")), "by": NAME, "reason": "purpose"}
    assert browser.post(f"/studies/{'0' * 64}/approve", form).status == 404
    assert browser.post(about(rig)[:-52] + "/approve", form).status == 404  # a part of a digest is none
    assert browser.post(about(rig, "/decline"), form).status == 303
    assert browser.post(about(rig, "/approve"), form).status == 409
    assert rig.seen().status is ConsentStatus.DECLINED


def test_a_study_that_breaks_a_rule_is_not_agreed_to(rig: Rig) -> None:
    browser, secret = rig.browser(), ""
    secret = browser.csrf(about(rig, "/approve"))
    with rig.config_file.open("a") as file:
        file.write('columns = ["age"]\n')
    assert browser.get(about(rig)).text.count("forbids the study") == 2, (
        "beside the buttons and with the rules"
    )
    assert "/approve" not in browser.get(about(rig)).text
    assert browser.post(about(rig, "/approve"), {"csrf": secret, "by": NAME}).status == 409
    assert rig.seen().status is ConsentStatus.PENDING


STRICT = """
columns = ["age"]
max_epsilon_per_study = 0.5
max_epsilon_per_year = 2.0
max_delta = 1e-9
max_columns_per_record = 0.1
minimum_records = 10
maximum_records = 10_000_000
person_column = "patient"
sites_per_person = 3
"""
OF_MASKED = {"colluding", "minimum_sites", "peers"}
BROKEN = {
    "columns", "max_epsilon_per_study", "max_delta", "max_columns_per_record", "minimum_records",
    "maximum_records", "person_column", "sites_per_person", "records",
}  # fmt: skip


def test_every_rule_is_shown_passed_or_failed(rig: Rig) -> None:
    browser = rig.browser()
    remaining = html.unescape(browser.get(about(rig)).text)
    with rig.config_file.open("a") as file:
        file.write(STRICT)
    broken = html.unescape(browser.get(about(rig)).text)
    for rule, (good, bad) in labels.RULE_LABELS.items():
        if rule not in OF_MASKED:
            assert good.split("%(")[0] in remaining, rule
        if rule not in {*OF_MASKED, "persons", "lines", "cells"}:  # of records that could be read
            assert (bad if rule in BROKEN else good).split("%(")[0] in broken, rule
    assert "%(" not in remaining + broken
    assert ("in one year" in remaining, "in one year" in broken) == (False, True)


def study_page(rig: Rig, **changes: object) -> str:
    plan = a_plan(replace(rig.plan.study, **changes), submission="changed")  # type: ignore[arg-type]
    rig.receive(plan)
    return html.unescape(rig.browser().get(f"/studies/{plan.digest}").text)


@pytest.mark.parametrize("algorithm", [Algorithm.SUBSPACE_EXACT, Algorithm.SUBSPACE_APPROX_RANK])
def test_answer_about_small_groups_is_not_called_one_about_all(rig: Rig, algorithm: Algorithm) -> None:
    none = "No question names a patient"
    assert none in html.unescape(rig.browser().get(about(rig)).text)
    shown_text = study_page(rig, algorithm=algorithm, components=1, scaling="bounds")
    assert none not in shown_text
    assert "can be a single patient" in shown_text


@pytest.mark.parametrize("noise", ["gaussian", "any"])
def test_right_guesses_of_a_hundred_are_the_guarantee_rounded_up(rig: Rig, noise: str) -> None:
    with rig.config_file.open("a") as file:
        file.write(f'noise = "{noise}"\n')
    config = load(rig.config_file)
    with open_site_store(config) as store:
        message, limit = consent_summary(config, store, rig.seen()), store.ledger.ledger.limit
    rho, own = Fraction(limit.micro_rho, MICRO), Fraction(limit.atto_delta, ATTO)
    ever = budget_inference_odds(rho, own, gaussian=noise == "gaussian")
    for right, most in ((message.odds.right, largest_inference_odds(rig.plan)), (message.right_ever, ever)):
        assert right - 1 < 100 * most <= right
    assert [inference_risk.percent_rounded_up(Fraction(n, 1000)) for n in (500, 501, 509, 510)] == [
        50, 51, 51, 51,
    ]  # fmt: skip


def test_script_in_any_text_is_shown_and_never_run(tmp_path: Path) -> None:
    """Purpose and applicant are the analyst's, name and reason are the officer's; a study's name and columns
    cannot."""
    rig = rigged(tmp_path)
    hostile = stated_plan(Applicant(**dict.fromkeys(LABELS, HOSTILE)))
    rig.plan = a_plan(replace(hostile.study, purpose=HOSTILE), submission="hostile")
    rig.receive(rig.plan)
    browser = rig.browser()
    assert browser.get("/").text.count(ESCAPED) == 3, "name, institution and purpose"
    decide(browser, rig, "decline", reason="purpose", by=HOSTILE, text=HOSTILE)
    for path, times in (("/", 1), (about(rig), 14), (about(rig, "/sheet"), 7)):
        text = browser.get(path).text
        assert HOSTILE not in text
        assert text.count(ESCAPED) == times, path


def test_numbers_that_left_are_not_shown_when_the_records_have_changed(rig: Rig) -> None:
    browser = rig.browser()
    decide(browser, rig, "approve")
    rig.answer()
    lines = rig.stage.records.read_text().splitlines()
    rig.stage.records.write_text("\n".join(lines[:-1]) + "\n")
    answer = browser.get("/sent/0")
    assert answer.status == 409
    assert "records have changed" in answer.text


def test_an_answer_that_does_not_exist_is_not_found_however_it_is_called(rig: Rig) -> None:
    for row in ("0", "-1", "x", 5000 * "9"):
        assert rig.browser().get(f"/sent/{row}").status == 404, row


def test_the_language_is_chosen_by_the_command_the_browser_or_a_link(rig: Rig) -> None:
    assert "Studien" in rig.browser("de").get("/").text
    browser = rig.browser()
    assert "Studien" in browser.get("/?lang=de").text
    assert "Studien" in browser.get("/").text
    assert "Studies" in browser.get("/?lang=en").text
    assert "geschlossen" in Browser(app=browser.app).get("/", accept_language="de-AT,de;q=0.9").text


def test_there_is_a_word_for_whatever_can_be_shown(rig: Rig) -> None:
    with open_site_store(rig.stage.config) as store:
        policy = consent.explain_plan(rig.stage.config, store, rig.plan, None)["policy"]
        rules = {verdict["rule"] for verdict in policy}
    assert set(labels.ANSWER_LABELS) == {*NAMES.values(), DECLINE, READY}
    assert set(labels.RULE_LABELS) == rules | OF_MASKED | {"engine"}  # on a cluster, in place of memory_mib
    assert set(labels.STATUS_LABELS) == set(ConsentStatus)
    assert set(SIGNATURE_TEXT) == set(SIGNATURE_LABEL) == set(labels.SIGNATURE_LABELS) == set(SignatureStatus)
    assert set(labels.REASON_LABELS) == set(DeclineReason)


def test_the_page_listens_on_this_machine_alone(rig: Rig, monkeypatch: Patch) -> None:
    addresses: list[str] = []

    def served(app: object, bound: object) -> None:
        addresses.append(bound.getsockname()[0])  # type: ignore[attr-defined]

    monkeypatch.setattr(program, "serve_until_stopped", served)
    program.serve(rig.config_file, 0, "en")
    assert addresses == ["127.0.0.1"]


def test_a_masked_study_is_marked_with_the_other_sites(rig: Rig) -> None:
    invited = Federation(sites=(SITE, "hospital-b", "hospital-c"), quorum=2)
    masked = replace(rig.plan.study, trust=Trust.SECURE_AGGREGATION, spare_attempts=2, federation=invited)
    plan, browser = a_plan(masked, submission="masked"), rig.browser()
    rig.receive(plan)
    page, central = browser.get(f"/studies/{plan.digest}").text, browser.get(about(rig)).text
    assert '<strong class="big">Masked</strong>' in page
    assert "with those of: hospital-b, hospital-c" in page
    assert "fewer than 2 sites" in page
    assert page.count("exact figures") == page.count("exact figures in every study that is not masked") == 1
    assert "may be tried again" in page
    assert "leaves once more, at most 8 times in all" in page
    assert "this study takes of the budget includes all that repeats can cost" in page
    assert "% of that is set aside to try rounds again" in page
    assert "together with at most 1 of the other sites" in page
    assert central.count("exact figures") > 1
    assert "Masked" not in central


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


def shown_text(sentence: inference_risk.Sentence, language: str) -> str:
    message = languages().translator(language)(sentence.text, **sentence.values)
    return message if sentence.number is None else f'<strong class="big">{sentence.number}</strong> {message}'


def test_the_sentences_name_what_the_number_rests_on() -> None:
    for name in STUDIES:
        plan = changed(name)
        odds = inference_risk.inference_risk_of(plan)
        texts = [one.text for one in odds.sentences]
        assert odds.right - 1 < 100 * largest_inference_odds(plan) <= odds.right
        assert inference_risk.ADVERSARY_KNOWLEDGE in texts
        assert (inference_risk.MEMBERSHIP_QUESTION in texts) == odds.membership
        assert (inference_risk.PUBLIC_NUMBER in texts) == (name == "replace-one") == (not odds.membership)
        assert (inference_risk.ROWS_CAVEAT in texts) == (name != "grouped rows") == (not odds.persons)
        assert (inference_risk.CENTRAL_CAVEAT in texts) == (name != "masked") == (odds.colluders is None)
        assert odds.sites == plan.study.max_sites_per_person
        values = [value for one in odds.sentences for value in one.values.values()]
        assert odds.sites in values
        assert odds.colluders in (None, 2)
        assert odds.colluders is None or odds.colluders in values

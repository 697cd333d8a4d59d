"""[R30] The digits of a key that nobody has confirmed are in no output of a site: they are to be heard."""

from __future__ import annotations

import html
import re
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.planning.choose import rehearse
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.store_access import open_site_store
from tests.client.site.command_line import site
from tests.client.site.commands.console.rig import Rig, rigged, study_plan
from tests.client.site.stated import work
from tests.client.site.support import FEDERATION, Log, a_plan
from tests.support import Capture, analyst_card, analyst_key, signed_by_analyst

KEYS = {"her own": analyst_key("ada"), "another": analyst_key("eve")}
KNOWN = {"nobody": (), "another analyst": ("bob",), "her": ("ada",)}


def bare(text: str) -> str:
    """A text without markup and blanks, in which forty digits are found however they are grouped."""
    return re.sub(r"[\s.,:-]+", "", html.unescape(re.sub(r"<[^>]*>", "", text)))


def came(rig: Rig, key: Ed25519PrivateKey) -> list[str]:
    stage, result = rig.stage, []
    with open_site_store(stage.config) as store:
        for plan, approval in ((rig.plan, Approval.MANUAL), (a_plan(submission="two"), Approval.AUTO)):
            stage.rule(approval=approval)
            signed = signed_by_analyst(plan, expires=int(time.time()) + 3600, key=key)
            sent = work(rehearse(plan)[0], stage.authorized(plan, signed))
            result.append(repr(stage.worker(store).work(sent)))
    return result


def pages(rig: Rig, language: str) -> list[str]:
    browser = rig.browser(language)
    acts = ("", "/sheet", "/approve", "/decline", "/withdraw")
    return [browser.get(f"/studies/{rig.plan.digest}{act}").text for act in acts] + [browser.get("/").text]


def commands(rig: Rig) -> list[str]:
    study = rig.plan.digest
    words = (
        ("studies",), ("explain", study), ("check",), ("doctor",), ("analysts", "list"),
        ("approve", study, "--yes", "--by", "Kim"),
    )  # fmt: skip
    done = [site(rig.config_file, *word, *form) for word in words for form in ((), ("--json",))]
    assert 71 not in [one.code for one in done], "a command that ends in a defect shows nothing"
    return [one.out for one in done]


# Each takes two seconds of a processor. The quick ones: imported and not, and known to be changed.
CASES = [(key, known, imported) for imported in (False, True) for key in KEYS for known in KNOWN]
QUICK = [("her own", "nobody", False), ("her own", "another analyst", True), ("another", "her", False)]


@pytest.mark.parametrize(
    ("key", "known", "imported"),
    [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in CASES],
)
def test_an_unconfirmed_fingerprint_is_in_no_output(
    tmp_path: Path, caplog: Log, capfd: Capture, key: str, known: str, imported: bool
) -> None:
    rig = rigged(tmp_path)
    for analyst in KNOWN[known]:
        rig.stage.know_analyst(analyst)
    card = analyst_card("ada", FEDERATION, KEYS[key])
    if imported and "ada" not in KNOWN[known]:
        Roster(ANALYSTS, rig.stage.config.identity).import_cards([card], FEDERATION, replacing=False)
    rig.plan = study_plan(name="signed", submission="one")
    shown = [
        *came(rig, KEYS[key]), *pages(rig, "en"), *pages(rig, "de"), *commands(rig), caplog.text,
        *capfd.readouterr(),
    ]  # fmt: skip
    found = [text for text in shown if bare(card.check().fingerprint) in bare(text)]
    confirmed = known == "her" and key == "her own"
    assert bool(found) is confirmed, found
    assert any("ada" in text for text in shown)

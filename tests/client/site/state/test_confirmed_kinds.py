"""[R30] [R31] A site whose confirmed cards are gone answers nothing: it is none that never knew anybody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code
from eigenveil.key_cards import cards_to_file
from eigenveil.planning.choose import rehearse
from eigenveil.signatures import formatted
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.policy_sections import KNOWN, TrustRules
from eigenveil_client.site.roster.analysts import ANALYSTS
from eigenveil_client.site.roster.peers import PEERS
from eigenveil_client.site.roster.pins import ROSTER_FORMAT
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.egress import DECLINE
from eigenveil_client.site.state.store import SiteStore
from tests.client.site.command_line import check_row, site, written
from tests.client.site.peers.people import knowing, theirs
from tests.client.site.stated import work
from tests.client.site.support import FEDERATION, Coordinator, Stage, a_plan, a_stage, until
from tests.support import analyst_card, analyst_key, refused, signed_by_analyst

PLAN, OTHER = a_plan(submission="one"), a_plan(submission="two")
GONE = ("were confirmed here", "nothing is answered", "from the backup")


def answer(stage: Stage, store: SiteStore, *, signed: bool, plan: object = PLAN, round: int = 0) -> object:
    by = signed_by_analyst(plan, expires=store.now() + 3600) if signed else None  # type: ignore[arg-type]
    return stage.worker(store).work(work(rehearse(plan)[round], stage.authorized(plan, by)))  # type: ignore[arg-type]


def ends_the_process(*words: str) -> AbstractContextManager[None]:
    """As it does when it connects: no word goes to the coordinator, which would keep it."""
    return refused(Code.BAD_CONFIG, *words or GONE)


def moved_away(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_text(json.dumps(formatted(ROSTER_FORMAT, {"analysts": [], "earlier": []})))


@pytest.mark.parametrize("loss", [moved_away, emptied])
def test_unsigned_studies_stay_refused_without_cards(stage: Stage, loss: Callable[[Path], None]) -> None:
    stage.know_analyst()
    with closing(stage.store()) as store:
        assert not isinstance(answer(stage, store, signed=True), Refusal)
        loss(stage.config.identity / ANALYSTS.file)
        for study in ({"signed": False, "plan": OTHER}, {"signed": True, "round": 1}):
            with ends_the_process():
                answer(stage, store, **study)
        assert store.declined.get(OTHER.digest) is None, "a lost file is no decision about a plan"
        assert [row.kind for row in store.egress.rows() if row.kind == DECLINE] == []
    with closing(stage.store()) as store:
        with ends_the_process():
            answer(stage, store, signed=False, plan=OTHER)
        stage.know_analyst()
        assert not isinstance(answer(stage, store, signed=True, round=1), Refusal)


def test_a_person_agrees_to_nothing_when_the_cards_are_gone(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    with closing(stage.store()) as store:
        assert answer(stage, store, signed=False) is None
        store.confirmed.note(ANALYSTS)
        seen = store.studies.find(PLAN.digest)
        for use in (
            lambda: consent.approve(stage.config, store, seen, by="ida"),
            lambda: consent.explain_plan(stage.config, store, PLAN, None),
        ):
            with refused(Code.BAD_CONFIG, *GONE):
                use()
        stage.rule(approval=Approval.AUTO)
        with ends_the_process():
            answer(stage, store, signed=False)


def test_central_studies_stay_refused_when_the_peers_are_gone(stage: Stage, store: SiteStore) -> None:
    knowing(stage, theirs())
    store.confirmed.note_and_require(stage.config.identity)
    (stage.config.identity / PEERS.file).unlink()
    with ends_the_process():
        answer(stage, store, signed=False)
    assert store.ledger.ledger.size == 0


def test_answers_end_when_the_cards_of_peers_are_gone(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, secrecy=TrustRules(trust=KNOWN))
    knowing(stage, theirs())
    with closing(stage.store()) as store:
        sent = answer(stage, store, signed=False)
        assert isinstance(sent, Contribution)
        (stage.config.identity / PEERS.file).unlink()
        with ends_the_process():
            answer(stage, store, signed=False, round=1)
        with ends_the_process():
            stage.worker(store).may_send(sent)


async def test_a_daemon_ends_when_a_roster_is_damaged_while_it_is_connected(stage: Stage) -> None:
    stage.know_analyst()
    file = stage.config.identity / ANALYSTS.file
    whole = file.read_bytes()
    signed = stage.authorized(PLAN, signed_by_analyst(PLAN, expires=1_800_003_600))
    coordinator = Coordinator()
    async with stage.serving(coordinator):
        with closing(stage.store()) as store:
            running = asyncio.create_task(stage.make_daemon(store).run())
            await until(lambda: coordinator.requests)
            file.write_bytes(b"{")
            coordinator.work.append(work(rehearse(PLAN)[0], signed))
            with ends_the_process("is damaged"):
                await asyncio.wait_for(running, 60)
            assert store.egress.rows() == []
            file.write_bytes(whole)
            assert isinstance(answer(stage, store, signed=True), Contribution)
    assert coordinator.declines == []


@pytest.mark.parametrize("how", ["remove", "replace", "daemon"])
def test_backup_of_cards_does_not_confirm_a_removed_one(stage: Stage, how: str) -> None:
    config, file = written(stage), stage.config.identity / ANALYSTS.file
    stage.know_analyst()
    stage.know_analyst("bob")
    stage.store().close()
    backup = file.read_bytes()
    new = stage.folder / "ada.analyst"
    new.write_bytes(cards_to_file([analyst_card("ada", FEDERATION, analyst_key("new"))]))
    if how == "daemon":
        Roster(ANALYSTS, stage.config.identity).remove("ada")
        with closing(stage.store()) as store:
            store.confirmed.note_and_require(stage.config.identity)
    else:
        words = ("remove", "ada") if how == "remove" else ("import", new, "--replace")
        assert site(config, "analysts", *words).code == 0
    file.write_bytes(backup)
    file.chmod(0o600)
    with closing(stage.store()) as store:
        with ends_the_process("key card of ada, confirmed in it, was removed since", "analysts remove ada"):
            answer(stage, store, signed=True)
        assert site(config, "analysts", "remove", "ada").code == 0
        assert isinstance(answer(stage, store, signed=True), Refusal)
        stage.know_analyst()
        assert isinstance(answer(stage, store, signed=True, plan=OTHER), Contribution), "confirmed anew"


async def test_a_daemon_does_not_start_without_them(stage: Stage, store: SiteStore) -> None:
    stage.know_analyst()
    store.confirmed.note_and_require(stage.config.identity)
    (stage.config.identity / ANALYSTS.file).unlink()
    daemon = stage.make_daemon(store)
    with refused(Code.BAD_CONFIG, *GONE):
        await asyncio.wait_for(daemon.run(), 60)


def test_a_lost_confirmation_fails_the_check(stage: Stage) -> None:
    config = written(stage)
    stage.store().close()
    card = analyst_card("ada", FEDERATION)
    file = stage.folder / "ada.analyst"
    file.write_bytes(cards_to_file([card]))
    digits = card.check().fingerprint
    site(config, "analysts", "import", file)
    confirm = ("confirm", "ada", "--fingerprint", digits, "--by", "Kim")
    assert site(config, "analysts", *confirm, "--json").code == 0
    (stage.config.identity / ANALYSTS.file).unlink()
    row = check_row(config, "confirmed cards")
    assert (row["level"], GONE[0] in row["text"]) == ("fail", True)


@pytest.mark.parametrize("kind", [PEERS, ANALYSTS], ids=["peers", "analysts"])
@pytest.mark.parametrize("there", [True, False], ids=["a link to a roster", "a link to nothing"])
def test_roster_link_is_neither_followed_nor_replaced(stage: Stage, kind: object, there: bool) -> None:
    path, elsewhere = stage.config.identity / kind.file, stage.folder / "elsewhere"  # type: ignore[attr-defined]
    if there:
        emptied(elsewhere)
        elsewhere.chmod(0o600)
    path.symlink_to(elsewhere)
    roster = Roster(kind, stage.config.identity)  # type: ignore[arg-type, var-annotated]
    for use in (roster.content, lambda: roster.mark_changed("ada", "0" * 64)):
        with refused(Code.BAD_CONFIG, "is a link: replace it by the file itself"):
            use()
    assert path.is_symlink()

"""Commands with which a person decides: about studies, and about a ledger that went back or was lost."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenveil.study.consent import DeclineWord
from eigenveil_client.site.commands.options import BY, CONFIG, CONFIG_FILE, JSON, who_decides
from eigenveil_common.command import asks, console, say, tell

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


def _reason(stated: str | None, *, ask: bool) -> DeclineWord:
    """Why a study is declined: as stated, or as said on a terminal."""
    if stated is None and ask and sys.stdin.isatty():
        for word in DeclineWord:
            console.print(f"  {word.value}: {word.sentence}", markup=False)
        words = click.Choice([word.value for word in DeclineWord])
        stated = click.prompt("Why? The analyst reads this", type=words, default=DeclineWord.UNSTATED.value)
    return DeclineWord(stated or DeclineWord.UNSTATED)


@click.command()
@CONFIG_FILE
@click.option(
    "--forget-proof",
    "forgotten",
    metavar="STUDY",
    help="Let a plan go that is stored as proof: save it first.",
)
@JSON
def studies(config_file: Path, forgotten: str | None, as_json: bool) -> None:
    """List every study that came here, and what was decided about it.

    Of studies that the rules of site.toml declined it shows a count for each day, analyst and rule. The first
    that the coordinator signed in a name whose own key did not are stored whole: --json shows the bytes. With
    --forget-proof nothing is listed but the plan that goes, which makes room for another in this name.
    """
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state import opening

    config = site_config.load(config_file)
    with opening.opened(config) as store:
        if forgotten is not None:
            gone = store.proofs.forget(forgotten)
            say({"forgotten": gone.to_dict()}, as_json, f"study {gone.plan[:12]} is stored as proof no more")
            return
        told = consent.studies(config, store)
    tell(told, as_json, partial(consent.show_studies, config_file=config_file))


@click.command()
@CONFIG
@click.argument("study")
@JSON
def explain(config: SiteConfig, study: str, as_json: bool) -> None:
    """Say what STUDY (a study file, or a study that came here) asks, reveals and costs."""
    from eigenveil.protocol.plan import plan_from_json
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state import opening

    with opening.opened(config) as store:
        file = Path(study)
        seen = None if file.exists() else store.studies.find(study)
        plan = consent.plan_of(config, file) if seen is None else plan_from_json(seen.plan_json)
        told = consent.explained(config, store, plan, None if seen is None else seen.signed)
    tell(told, as_json, consent.show_explanation)


@click.command()
@CONFIG
@click.argument("study")
@click.option("--yes", is_flag=True, help="Do not ask.")
@BY
@JSON
def approve(config: SiteConfig, study: str, yes: bool, by: str | None, as_json: bool) -> None:
    """Agree to STUDY, which waits: to exactly the plan that is shown, and no other.

    Whoever answers no leaves it waiting; that is no error (exit code 0). With --json or without a terminal
    nobody is asked: add --yes.
    """
    from eigenveil.accounting.zcdp import NOTHING
    from eigenveil.protocol.plan import plan_from_json
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state import opening
    from eigenveil_client.site.state.received_plans import Decision, check_move

    if not (yes or asks(as_json)):
        raise click.UsageError(
            "nobody is there to ask (no terminal, or --json); read `explain`, then add --yes"
        )
    with opening.opened(config) as store:
        seen = store.studies.find(study)
        check_move(seen.plan, seen.standing, Decision.ACCEPTED)
        if not yes:
            plan = plan_from_json(seen.plan_json)
            consent.show_explanation(consent.explained(config, store, plan, seen.signed))
            if not click.confirm("Answer this study?"):
                console.print("not approved; it still waits")
                return
        consent.approve(config, store, seen, by=who_decides(by, ask=not yes))
        consent.show_move(seen, Decision.ACCEPTED, NOTHING, config, as_json)


@click.command()
@CONFIG
@click.argument("study")
@click.option(
    "--reason",
    type=click.Choice([word.value for word in DeclineWord]),
    help="What its analyst is told [default: asked for, or unstated].",
)
@click.option("--text", default="", help="Why, in words: kept here, and told only if tell_reasons = true.")
@BY
@JSON
def decline(
    config: SiteConfig, study: str, reason: str | None, text: str, by: str | None, as_json: bool
) -> None:
    """Refuse STUDY, which waits, for good. Its analyst is told the reason that is chosen from the list."""
    from eigenveil.accounting.zcdp import NOTHING
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state import opening
    from eigenveil_client.site.state.received_plans import Decision, check_move

    with opening.opened(config) as store:
        seen = store.studies.find(study)
        check_move(seen.plan, seen.standing, Decision.DECLINED)
        word, person = _reason(reason, ask=not as_json), who_decides(by, ask=not as_json)
        consent.decline(config, store, seen, by=person, word=word, text=text)
        consent.show_move(seen, Decision.DECLINED, NOTHING, config, as_json)


@click.command()
@CONFIG
@click.argument("study")
@click.option("--yes", is_flag=True, help="Do not ask.")
@BY
@JSON
def withdraw(config: SiteConfig, study: str, yes: bool, by: str | None, as_json: bool) -> None:
    """Answer STUDY no more, for good, and free what it had set aside.

    Holds from the next answer on, beside a running daemon too; what was spent stays spent. Before the first
    question nothing was. It also ends a study that its coordinator will never end. A person at a terminal is
    asked whether to; whoever answers no has changed nothing (exit code 0).
    """
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state import opening
    from eigenveil_client.site.state.received_plans import Decision, check_move

    with opening.opened(config) as store:
        seen = store.studies.find(study)
        check_move(seen.plan, seen.standing, Decision.WITHDRAWN)
        may_ask = asks(as_json) and not yes
        if may_ask and not click.confirm(f"Withdraw from study {seen.plan[:12]}? This is final"):
            console.print("not withdrawn; nothing has changed")
            return
        freed = consent.withdraw(config, store, seen, by=who_decides(by, ask=may_ask))
        consent.show_move(seen, Decision.WITHDRAWN, freed, config, as_json)


@click.command(name="accept-checkpoint")
@CONFIG
@JSON
def accept_checkpoint(config: SiteConfig, as_json: bool) -> None:
    """Go on with a coordinator whose ledger went back behind what this site had seen of it.

    Only after its operator has said why. What this site has spent itself stays spent. Stop the daemon first.
    """
    from eigenveil_client.site.state import opening

    with opening.alone(config.state), opening.opened(config) as store:
        before, now = store.checkpoints.accept()
    text = f"Accepted a ledger of {now} rows in place of one of {before}. Start the daemon again."
    say({"rows_before": before, "rows": now}, as_json, text)


@click.command(name="accept-loss")
@CONFIG
@JSON
def accept_loss(config: SiteConfig, as_json: bool) -> None:
    """Go on although this site's own ledger is gone or was put back, and charge what it had committed.

    Only when there is no newer copy of the state. What was spent or set aside counts as spent.
    """
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.peers.keys import made
    from eigenveil_client.site.state import opening

    charged = opening.accept_loss(config)
    delta = config.policy.budget_delta
    words = consent.amount_words(consent.amount(charged.micro_rho, config, gaussian_only=False), delta)
    text = f"Charged {words}, for the rows that are lost. Start the daemon again."
    if made(config.identity):  # two answers to one attempt have the noise of two shares between them
        text += (
            " But first, if the records have changed since, move peer.key away and make a new card, which "
            "other sites must confirm: what was masked with this one is forgotten here."
        )
    say({"micro_rho": charged.micro_rho, "atto_delta": str(charged.atto_delta)}, as_json, text)


COMMANDS = (studies, explain, approve, decline, withdraw, accept_checkpoint, accept_loss)

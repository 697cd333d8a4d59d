"""Commands with which a person decides: about studies, and about a ledger that went back or was lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, RequestError
from eigenveil.planning.resolve import make_plan
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study.toml import parse_study
from eigenveil_client.connection.identity import named
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.options import CONFIG, CONFIG_FILE, JSON
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state import opening
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlan, check_move
from eigenveil_common.command import console, say, tell
from eigenveil_common.files import read


@click.command()
@CONFIG_FILE
@JSON
def studies(config_file: Path, as_json: bool) -> None:
    """List every study that came here, and what was decided about it."""
    config = site_config.load(config_file)
    with opening.opened(config) as store:
        told = consent.studies(store)
    tell(told, as_json, partial(consent.show_studies, config_file=config_file))


@click.command()
@CONFIG
@click.argument("study")
@JSON
def explain(config: SiteConfig, study: str, as_json: bool) -> None:
    """Say what STUDY (a study file, or a study that came here) asks, reveals and costs."""
    with opening.opened(config) as store:
        file = Path(study)
        plan = plan_of(config, file) if file.exists() else plan_from_json(store.studies.find(study).plan_json)
        told = consent.explained(config, store, plan)
    tell(told, as_json, consent.show_explanation)


@click.command()
@CONFIG
@click.argument("study")
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
def approve(config: SiteConfig, study: str, yes: bool, as_json: bool) -> None:
    """Agree to STUDY, which waits: to exactly the plan that is shown, and no other.

    Whoever answers no leaves it waiting; that is no error (exit code 0). --json asks nobody: add --yes.
    """
    if as_json and not yes:
        raise click.UsageError("--json asks nobody; read `explain`, then add --yes")
    with opening.opened(config) as store:
        seen = store.studies.find(study)
        check_move(seen.plan, seen.standing, Decision.ACCEPTED)
        if not yes:
            consent.show_explanation(consent.explained(config, store, plan_from_json(seen.plan_json)))
            if not click.confirm("Answer this study?"):
                console.print("not approved; it still waits")
                return
        consent.approve(config, store, seen)
        _say(seen, Decision.ACCEPTED, NOTHING, config, as_json)


@click.command()
@CONFIG
@click.argument("study")
@JSON
def decline(config: SiteConfig, study: str, as_json: bool) -> None:
    """Refuse STUDY, which waits, for good. Nobody is told why."""
    with opening.opened(config) as store:
        seen = store.studies.find(study)
        store.decline(seen, Code.POLICY, person=True)
        _say(seen, Decision.DECLINED, NOTHING, config, as_json)


@click.command()
@CONFIG
@click.argument("study")
@JSON
def withdraw(config: SiteConfig, study: str, as_json: bool) -> None:
    """Answer STUDY no more, for good, and free what it had set aside.

    Holds from the next answer on, beside a running daemon too; what was spent stays spent. It also
    ends a study that its coordinator will never end.
    """
    with opening.opened(config) as store:
        seen = store.studies.find(study)
        _say(seen, Decision.WITHDRAWN, store.withdraw(seen.plan), config, as_json)


@click.command(name="accept-checkpoint")
@CONFIG
@JSON
def accept_checkpoint(config: SiteConfig, as_json: bool) -> None:
    """Go on with a coordinator whose ledger went back behind what this site had seen of it.

    Only after its operator has said why. What this site has spent itself stays spent. Stop the daemon first.
    """
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
    charged = opening.accept_loss(config)
    text = f"Charged {charged.micro_rho} micro-rho for the rows that are lost. Start the daemon again."
    say({"micro_rho": charged.micro_rho, "atto_delta": str(charged.atto_delta)}, as_json, text)


def _say(seen: ReceivedPlan, standing: Decision, cost: Cost, config: SiteConfig, as_json: bool) -> None:
    """What a study was and has become, and what that freed of the budget."""
    delta = config.policy.budget_delta
    freed = consent.amount(cost.micro_rho, config, plan_from_json(seen.plan_json).gaussian)
    told = {
        "study": seen.plan,
        "was": seen.standing.value,
        "standing": standing.value,
        "freed": freed,
        "delta": delta,
    }
    words = f"study {seen.plan[:12]} is {standing.value} (it was {seen.standing.value})"
    if cost.micro_rho:
        words += f"; free again: {consent.amount_words(freed, delta)}"
    say(told, as_json, words)


def plan_of(config: SiteConfig, path: Path) -> Plan:
    """The plan that a study file would become.

    Raises:
        RequestError: the file cannot be read or is no study.
    """
    try:
        text = read(path).decode()
    except UnicodeDecodeError as problem:
        raise RequestError(Code.BAD_STUDY, f"{path} is not UTF-8 text") from problem
    identity = named(config.identity)
    return make_plan(
        parse_study(text),
        federation="not-enrolled" if identity is None else identity.federation,
        submission="explained-at-the-site",
    )


COMMANDS = (studies, explain, approve, decline, withdraw, accept_checkpoint, accept_loss)

"""Commands on a site's state: a person's decisions, and evidence of what was spent, received and sent."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil_client.site.commands.terminal import (
    BY,
    CONFIG,
    CONFIG_FILE,
    JSON,
    decider_name,
    opened_store,
    warn_if_outdated,
)
from eigenveil_common.command import (
    FILE,
    FOLDER,
    console,
    is_interactive,
    print_result,
    print_result_as,
    shell_command,
)
from eigenveil_common.files import check_output, read, write_durably

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


def _decline_reason(stated: str | None, *, ask: bool) -> DeclineReason:
    """Return the reason of a decline: as given, or from the prompt."""
    if stated is None and ask and sys.stdin.isatty():
        for word in DeclineReason:
            console.print(f"  {word.value}: {word.sentence}", markup=False)
        words = click.Choice([word.value for word in DeclineReason])
        stated = click.prompt("Reason, sent to the analyst", type=words, default=DeclineReason.UNSTATED.value)
    return DeclineReason(stated or DeclineReason.UNSTATED)


@click.command()
@CONFIG_FILE
@click.option(
    "--forget-proof",
    "forgotten",
    metavar="STUDY",
    help="Delete a plan that is stored as proof: save it first.",
)
@JSON
def studies(config_file: Path, forgotten: str | None, as_json: bool) -> None:
    """List every received study and its status.

    Studies declined by the rules of site.toml are counted by day, analyst and rule. Studies that the
    coordinator signed under an analyst's name, without that analyst's signature, are stored as proof: --json
    shows the bytes. --forget-proof shows only the plan that it deletes, which frees space for another one
    under this name."""
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.commands import study_list

    config = site_config.load(config_file)
    with opened_store(config) as store:
        if forgotten is not None:
            gone = store.proofs.forget(forgotten)
            text = f"study {gone.plan[:12]} is not stored as proof now"
            print_result({"forgotten": study_list.proof_row(gone)}, as_json, text)
            return
        view = study_list.studies(config, store)
    print_result_as(view, as_json, partial(study_list.show_studies, config_file=config_file))


@click.command()
@CONFIG
@click.argument("study")
@JSON
def explain(config: SiteConfig, study: str, as_json: bool) -> None:
    """Explain the queries, disclosures and cost of STUDY (a study file, or a received study)."""
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.commands.line_report import lines_view

    with opened_store(config) as store:
        file = Path(study)
        received = None if file.exists() else store.studies.find(study)
        plan = consent.plan_of(config, file) if received is None else received.read_plan()
        view = consent.explain_plan(
            config, store, plan, None if received is None else received.signed, received
        )
    view["lines"] = lines_view(config, plan.study.columns)
    print_result_as(view, as_json, consent.show_explanation)


@click.command()
@CONFIG
@click.argument("study")
@click.option("--yes", is_flag=True, help="Do not prompt.")
@BY
@JSON
def approve(config: SiteConfig, study: str, yes: bool, by: str | None, as_json: bool) -> None:
    """Approve STUDY, which is pending: exactly the plan that is shown.

    If you answer no, it stays pending (exit code 0). With --json or without a terminal add --yes: there is no
    prompt."""
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state.received_plans import ConsentStatus

    if not (yes or is_interactive(as_json)):
        raise click.UsageError("there is no prompt (no terminal, or --json); read `explain`, then add --yes")
    warn_if_outdated(config)
    with opened_store(config) as store:
        received = store.studies.find(study, ConsentStatus.ACCEPTED)
        if not yes:
            plan = received.read_plan()
            view = consent.explain_plan(config, store, plan, received.signed, received)
            consent.show_explanation(view)
            consent.require_passed(view)
            if not click.confirm("Answer this study?"):
                console.print("not approved; it is still pending")
                return
        consent.approve(config, store, received, by=decider_name(by, ask=not yes))
        consent.show_transition(received, ConsentStatus.ACCEPTED, config, as_json)


@click.command()
@CONFIG
@click.argument("study")
@click.option(
    "--reason",
    type=click.Choice([word.value for word in DeclineReason]),
    help="Reason sent to its analyst [default: prompt, or unstated].",
)
@click.option(
    "--text", default="", help="Reason as text: stored here, and sent only if disclose_reasons = true."
)
@BY
@JSON
def decline(
    config: SiteConfig, study: str, reason: str | None, text: str, by: str | None, as_json: bool
) -> None:
    """Decline STUDY, which is pending. This is final; its analyst receives the reason chosen from the
    list."""
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state.received_plans import ConsentStatus

    with opened_store(config) as store:
        received = store.studies.find(study, ConsentStatus.DECLINED)
        word, person = _decline_reason(reason, ask=not as_json), decider_name(by, ask=not as_json)
        consent.decline(config, store, received, by=person, word=word, text=text)
        consent.show_transition(received, ConsentStatus.DECLINED, config, as_json)


@click.command()
@CONFIG
@click.argument("study")
@click.option("--yes", is_flag=True, help="Do not prompt.")
@BY
@JSON
def withdraw(config: SiteConfig, study: str, yes: bool, by: str | None, as_json: bool) -> None:
    """Withdraw from STUDY and free its reserved budget. This is final.

    It takes effect with the next answer, also beside a running daemon; spent budget stays spent. It also ends
    a study that its coordinator never ends. At a terminal you are asked to confirm; no changes nothing (exit
    code 0)."""
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.state.received_plans import ConsentStatus

    with opened_store(config) as store:
        received = store.studies.find(study, ConsentStatus.WITHDRAWN)
        may_ask = is_interactive(as_json) and not yes
        if may_ask and not click.confirm(f"Withdraw from study {received.plan[:12]}? This is final"):
            console.print("not withdrawn; nothing has changed")
            return
        freed = consent.withdraw(config, store, received, by=decider_name(by, ask=may_ask))
        consent.show_transition(received, ConsentStatus.WITHDRAWN, config, as_json, freed)


@click.command(name="accept-checkpoint")
@CONFIG
@JSON
def accept_checkpoint(config: SiteConfig, as_json: bool) -> None:
    """Accept a coordinator's ledger that is older than the last one this site received.

    Only after its operator has explained why. This site's spent budget stays spent. Stop the daemon first."""
    from eigenveil_client.site.state import store_access

    with store_access.exclusive_lock(config.state), opened_store(config) as store:
        before, now = store.checkpoints.accept()
    text = f"Accepted a ledger of {now} rows in place of one of {before}. Start the daemon again."
    print_result({"rows_before": before, "rows": now}, as_json, text)


@click.command(name="accept-loss")
@CONFIG
@JSON
def accept_loss(config: SiteConfig, as_json: bool) -> None:
    """Continue after this site's ledger was lost or restored from an old copy, and charge the loss.

    Only if there is no newer copy of the state. Budget spent or reserved in the lost rows counts as spent."""
    from eigenveil_client.site.commands import consent
    from eigenveil_client.site.roster.peers import has_keys
    from eigenveil_client.site.state import store_access

    charged = store_access.accept_loss(config)
    delta = config.policy.budget_delta
    words = consent.amount_text(consent.amount(charged.micro_rho, config, gaussian_only=False), delta)
    text = f"Charged {words}, for the lost rows. Start the daemon again."
    if has_keys(config.identity):  # two answers to one attempt would have two noise shares
        text += (
            " But first, if the records have changed since, move peer.key away and make a new key card, "
            "which other sites must confirm: this site no longer knows its masked answers under the old one."
        )
    print_result({"micro_rho": charged.micro_rho, "atto_delta": str(charged.atto_delta)}, as_json, text)


@click.command()
@CONFIG
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@JSON
def upgrade(config: SiteConfig, dry_run: bool, as_json: bool) -> None:
    """Upgrade this site's database to the version that this program needs. Stop the daemon first.

    With --dry-run the daemon may run. The command makes a backup beside the database, reads it back, changes
    the tables and checks all that is stored. Whenever it is interrupted, the database is as before. A program
    of an earlier version cannot open it afterwards."""
    from eigenveil_client.site.state import store_access

    done = store_access.upgrade_state(config, dry_run=dry_run)
    print_result(asdict(done), as_json, done.text())


@click.command(name="move-out")
@CONFIG_FILE
@click.option("--out", required=True, type=FOLDER, help="A new folder.")
@click.option(
    "--again", is_flag=True, help="If an earlier folder is lost, and no daemon was started with it."
)
@JSON
def move_out(config_file: Path, out: Path, again: bool, as_json: bool) -> None:
    """Write this site's identity, ledgers and configuration into a folder, for another machine.

    Stop the daemon first. Afterwards this site is not served here. Protect the folder like the site: it
    contains its keys. The records are not in it."""
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.state import moving

    manifest = moving.move_out(config_file, site_config.load(config_file), out, again=again)
    then = shell_command("eigenveil-site", "move-in", "--from", "FOLDER", "--dir", "DIR")
    text = f"wrote {out}: {len(manifest.files)} files, a ledger of {manifest.ledger['rows']} rows\n"
    text += f"carry it to the other machine by a safe way, and run there: {then}"
    print_result({"folder": str(out), **manifest.ledger}, as_json, text)


@click.command(name="move-in")
@click.option("--from", "source", required=True, type=FOLDER, help="The folder that move-out wrote.")
@click.option("--dir", "folder", required=True, type=FOLDER, help="A new folder.")
@JSON
def move_in(source: Path, folder: Path, as_json: bool) -> None:
    """Set up a site that moved here, and check its ledgers.

    Afterwards set `records` in site.toml, if they lie elsewhere on this machine."""
    from eigenveil_client.site.state import moving

    manifest, config = moving.move_in(source, folder)
    path = folder / moving.CONFIG_NAME
    check = shell_command("eigenveil-site", "check", "--config", path)
    text = f"{manifest.owner} is set up in {folder}: a ledger of {manifest.ledger['rows']} rows\n"
    text += f"set `records` in {path} to their place on this machine, then run: {check}"
    print_result({"config": str(path), "name": config.name, **manifest.ledger}, as_json, text)


HEAD = click.option("--head", default="", help="A head noted earlier: check that the chain contains it.")


@click.group()
def ledger() -> None:
    """This site's privacy budget: every reservation, charge and settlement."""


@ledger.command("show")
@CONFIG
@JSON
def show_ledger(config: SiteConfig, as_json: bool) -> None:
    """Verify the ledger and show it."""
    from eigenveil_client.site.commands import evidence

    with opened_store(config) as store:
        view = evidence.ledger(store, config)
    print_result_as(view, as_json, evidence.show_ledger)


@ledger.command("verify")
@CONFIG
@HEAD
@click.option(
    "--release",
    type=FILE,
    help="A published release.zip, to check against the statements signed to this site.",
)
@JSON
def verify_ledger(config: SiteConfig, head: str, release: Path | None, as_json: bool) -> None:
    """Verify the chain of the ledger, row by row, and print its head.

    With --release exit code 13 if the published document contradicts what the coordinator signed to this
    site, or the queries that this site was charged for: both are then proof against the coordinator."""
    from eigenveil.reporting.verify import load_release, verify_release
    from eigenveil_client.connection.identity import load_identity
    from eigenveil_client.site.commands import evidence

    with opened_store(config) as store:
        if release is not None:
            key = load_identity(config.identity).release_keys.known
            published = load_release(read(release))
            verify_release(published, key)
            evidence.check_published(store, published.document, key, config.name)
        evidence.report_chain("ledger", [entry.digest for entry in store.ledger.entries()], head, as_json)


@ledger.command("rounds")
@CONFIG
@click.option("--study", "wanted", required=True, help="Its name, or the first characters of its digest.")
@click.option("--out", type=FILE, default=Path("rounds.json"), show_default=True)
@JSON
def write_rounds(config: SiteConfig, wanted: str, out: Path, as_json: bool) -> None:
    """Write the coordinator's signed statements about a study's rounds, for `eigenveil verify --log`.

    For a masked study it checks and lists every attempt that was signed to this site, with the sites of its
    set. Refused attempts are proof against the coordinator. --json shows the signed bytes too."""
    from eigenveil_client.connection.identity import load_identity
    from eigenveil_client.site.commands import evidence

    check_output(out)
    with opened_store(config) as store:
        plan = store.studies.find(wanted).plan
        log = store.transcript.log(plan)
        sets = evidence.sets(store, plan, load_identity(config.identity).release_keys.known)
    write_durably(out, log.to_json())
    view = {"log": str(out), "statements": len(log.messages), "attempts": sets}
    print_result(view, as_json, "\n".join(filter(None, (evidence.sets_text(sets), str(out)))))


@click.group()
def egress() -> None:
    """Messages that left this site: one row for every answer and every refusal."""


@egress.command("show")
@CONFIG
@click.option("--round", "round_number", type=click.IntRange(1), help="Only this round, counted from 1.")
@click.option("--study", "wanted", help="Only this study: its name, or the first characters of its digest.")
@click.option("--numbers", "decode", is_flag=True, help="Compute and explain one answer's numbers again.")
@JSON
def show_egress(
    config: SiteConfig, round_number: int | None, wanted: str | None, decode: bool, as_json: bool
) -> None:
    """Verify the egress ledger and show each message: its meaning, its bytes and its digest.

    --numbers explains above the table what a value of 1 is. Values are moved into their column's public
    bounds and counted in grid steps from a public centre. A record farther from it than the public radius is
    clipped to the radius. Numbers are whole grid steps; sums and products are shown in the study's units too.
    --json shows every row and number in full."""
    from eigenveil_client.site.commands import evidence
    from eigenveil_client.site.engine.engine import make_engine

    with opened_store(config) as store:
        rows = evidence.select_rows(store, round_number, wanted)
        if not decode:
            view = evidence.egress(rows, store.traffic.counts(), store.egress.head())
        else:
            view = evidence.recompute_answer(store, evidence.single_answer(rows), make_engine(config))
    print_result_as(view, as_json, evidence.show_decoded if decode else evidence.show_egress)


@egress.command("verify")
@CONFIG
@HEAD
@JSON
def verify_egress(config: SiteConfig, head: str, as_json: bool) -> None:
    """Verify the chain, the query of every row, and that each charge of the budget has its row."""
    from eigenveil_client.site.commands import evidence

    with opened_store(config) as store:
        rows = store.egress.verify(store.ledger)
        evidence.report_chain("egress ledger", [row.digest for row in rows], head, as_json)


@click.command()
def sbom() -> None:
    """List what is installed beside this program, as CycloneDX JSON."""
    from eigenveil_client.site.commands.evidence import sbom as installed

    print_result(installed(), True, "")


DECISIONS = (studies, explain, approve, decline, withdraw, accept_checkpoint, accept_loss)
COMMANDS = (*DECISIONS, upgrade, move_out, move_in, ledger, egress, sbom)

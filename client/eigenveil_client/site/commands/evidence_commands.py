"""Commands for a site's evidence: ledger, egress, sbom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenveil_client.site.commands.terminal import CONFIG, JSON
from eigenveil_common.command import FILE, print_result, print_result_as
from eigenveil_common.files import check_output, read, write_durably

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


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
    from eigenveil_client.site.state import store_access

    with store_access.open_site_store(config) as store:
        view = evidence.ledger(store, config)
    print_result_as(view, as_json, evidence.show_ledger)


@ledger.command("verify")
@CONFIG
@HEAD
@click.option(
    "--release",
    type=FILE,
    help="A published release.json, to check against the statements signed to this site.",
)
@JSON
def verify_ledger(config: SiteConfig, head: str, release: Path | None, as_json: bool) -> None:
    """Verify the chain of the ledger, row by row, and print its head.

    With --release exit code 13 if the published document contradicts what the coordinator signed to this
    site, or the queries that this site was charged for: both are then proof against the coordinator.
    """
    from eigenveil.reporting.verify import load_release, verify_release
    from eigenveil_client.connection.identity import load_identity
    from eigenveil_client.site.commands import evidence
    from eigenveil_client.site.state import store_access

    with store_access.open_site_store(config) as store:
        if release is not None:
            key = load_identity(config.identity).release_key
            published = load_release(read(release))
            verify_release(published, key)
            evidence.check_published(store, published.document, key, config.name)
        entries = store.ledger.entries()
        evidence.report_chain("ledger", [entry.digest for entry in entries], head, as_json)


@ledger.command("rounds")
@CONFIG
@click.option("--study", "wanted", required=True, help="Its name, or the first characters of its digest.")
@click.option("--out", type=FILE, default=Path("rounds.json"), show_default=True)
@JSON
def write_rounds(config: SiteConfig, wanted: str, out: Path, as_json: bool) -> None:
    """Write the coordinator's signed statements about a study's rounds, for `eigenveil verify --log`.

    For a masked study it checks and lists every attempt that was signed to this site, with the sites of its
    set. Refused attempts are proof against the coordinator. --json shows the signed bytes too.
    """
    from eigenveil_client.connection.identity import load_identity
    from eigenveil_client.site.commands import evidence
    from eigenveil_client.site.state import store_access

    check_output(out)
    with store_access.open_site_store(config) as store:
        plan = store.studies.find(wanted).plan
        log = store.transcript.log(plan)
        sets = evidence.sets(store, plan, load_identity(config.identity).release_key)
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
    from eigenveil_client.site.state import store_access

    with store_access.open_site_store(config) as store:
        rows = evidence.select_rows(store, round_number, wanted)
        if not decode:
            view = evidence.egress(rows, store.traffic.counts(), store.egress.head())
        else:
            view = evidence.answer_view(
                evidence.recompute_answer(store, evidence.single_answer(rows), make_engine(config))
            )
    print_result_as(view, as_json, evidence.show_decoded if decode else evidence.show_egress)


@egress.command("verify")
@CONFIG
@HEAD
@JSON
def verify_egress(config: SiteConfig, head: str, as_json: bool) -> None:
    """Verify the chain, the query of every row, and that each charge of the budget has its row."""
    from eigenveil_client.site.commands import evidence
    from eigenveil_client.site.state import store_access

    with store_access.open_site_store(config) as store:
        rows = store.egress.verify(store.ledger.ledger)
        evidence.report_chain("egress ledger", [row.digest for row in rows], head, as_json)


@click.command()
def sbom() -> None:
    """List what is installed beside this program, as CycloneDX JSON."""
    from eigenveil_client.site.commands.evidence import sbom as installed

    print_result(installed(), True, "")


COMMANDS = (ledger, egress, sbom)

"""Commands that prove what a site did: ledger, egress, sbom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenveil_client.site.commands.options import CONFIG, JSON
from eigenveil_common.command import FILE, say, tell
from eigenveil_common.files import check_output, read, write_durably

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


HEAD = click.option("--head", default="", help="A head noted earlier: insist that the chain still holds it.")


@click.group()
def ledger() -> None:
    """This site's privacy budget: every reservation, charge and settlement."""


@ledger.command("show")
@CONFIG
@JSON
def show_ledger(config: SiteConfig, as_json: bool) -> None:
    """Verify the ledger and show it."""
    from eigenveil_client.site.commands import evidence_views
    from eigenveil_client.site.state import opening

    with opening.opened(config) as store:
        told = evidence_views.ledger(store, config)
    tell(told, as_json, evidence_views.show_ledger)


@ledger.command("verify")
@CONFIG
@HEAD
@click.option(
    "--release",
    type=FILE,
    help="A published release.json, to hold against what was signed to this site.",
)
@JSON
def verify_ledger(config: SiteConfig, head: str, release: Path | None, as_json: bool) -> None:
    """Verify the chain of the ledger, row by row, and print its head.

    With --release exit code 13 if the published document contradicts what the coordinator signed to this
    site, or the questions that this site was charged for: both are then proof against the coordinator.
    """
    from eigenveil.reporting.verify import load_release, verify_release
    from eigenveil_client.connection.identity import load_identity
    from eigenveil_client.site.commands import evidence
    from eigenveil_client.site.state import opening

    with opening.opened(config) as store:
        if release is not None:
            key = load_identity(config.identity).release_key
            published = load_release(read(release))
            verify_release(published, key)
            evidence.check_published(store, published.document, key, config.name)
        entries = store.ledger.entries()
        evidence.say_whole("ledger", [entry.digest for entry in entries], head, as_json)


@ledger.command("rounds")
@CONFIG
@click.option("--study", "wanted", required=True, help="Its name, or the first characters of its digest.")
@click.option("--out", type=FILE, default=Path("rounds.json"), show_default=True)
@JSON
def write_rounds(config: SiteConfig, wanted: str, out: Path, as_json: bool) -> None:
    """Write what the coordinator signed to this site of a study's rounds, for `eigenveil verify --log`.

    Of a masked study it checks and lists every attempt that was signed to this site, and the sites of its
    set: what was answered, and what was refused, which is proof against the coordinator. --json shows the
    signed bytes too.
    """
    from eigenveil_client.connection.identity import load_identity
    from eigenveil_client.site.commands import evidence
    from eigenveil_client.site.state import opening

    check_output(out)
    with opening.opened(config) as store:
        plan = store.studies.find(wanted).plan
        log = store.transcript.log(plan)
        sets = evidence.sets(store, plan, load_identity(config.identity).release_key)
    write_durably(out, log.to_json())
    told = {"log": str(out), "statements": len(log.messages), "attempts": sets}
    say(told, as_json, "\n".join(filter(None, (evidence.sets_text(sets), str(out)))))


@click.group()
def egress() -> None:
    """What has left this site: one row for every answer and every refusal."""


@egress.command("show")
@CONFIG
@click.option("--round", "round_number", type=click.IntRange(1), help="Only this round, counted from 1.")
@click.option("--study", "wanted", help="Only this study: its name, or the first characters of its digest.")
@click.option("--numbers", "decode", is_flag=True, help="Compute one answer's numbers again, and name each.")
@JSON
def show_egress(
    config: SiteConfig, round_number: int | None, wanted: str | None, decode: bool, as_json: bool
) -> None:
    """Verify the egress ledger and show it: what left, what it meant, how many bytes, and its digest.

    --numbers says above the table what a value of 1 is. Values are clipped: moved into their column's public
    bounds, counted in grid steps from a public centre, and a record farther from it than the public radius is
    shortened to that. So they are whole grid steps, not the study's units; sums and products are shown in
    those units besides, and the rest has none. --json shows every row and number in full.
    """
    from eigenveil_client.site.commands import evidence, evidence_views, recompute
    from eigenveil_client.site.engine.opening import engine
    from eigenveil_client.site.state import opening

    with opening.opened(config) as store:
        rows = evidence.chosen(store, round_number, wanted)
        if not decode:
            told = evidence_views.egress(rows, store.traffic.counts(), store.egress.head())
        else:
            told = evidence_views.decoded(recompute.again(store, evidence.one_answer(rows), engine(config)))
    tell(told, as_json, evidence_views.show_decoded if decode else evidence_views.show_egress)


@egress.command("verify")
@CONFIG
@HEAD
@JSON
def verify_egress(config: SiteConfig, head: str, as_json: bool) -> None:
    """Verify the chain, every question beside it, and that each charge of the budget has its row."""
    from eigenveil_client.site.commands import evidence
    from eigenveil_client.site.state import opening

    with opening.opened(config) as store:
        rows = store.egress.verify(store.ledger.ledger)
        evidence.say_whole("egress ledger", [row.digest for row in rows], head, as_json)


@click.command()
def sbom() -> None:
    """List what is installed beside this program, as CycloneDX JSON."""
    from eigenveil_client.site.commands.sbom import sbom as installed

    say(installed(), True, "")


COMMANDS = (ledger, egress, sbom)

"""Commands that prove what a site did: ledger, egress, sbom."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.ledger import GENESIS
from eigenveil_client import evidence_views, recomputed, site_config, site_service
from eigenveil_client.egress import Row
from eigenveil_client.sbom import sbom as installed
from eigenveil_client.site_options import CONFIG, JSON
from eigenveil_client.site_store import SiteStore
from eigenveil_common.command import say

HEAD = click.option("--head", default="", help="A head noted earlier: insist that the chain still holds it.")


@click.group()
def ledger() -> None:
    """This site's privacy budget: every reservation, charge and settlement."""


@ledger.command("show")
@CONFIG
@JSON
def show_ledger(config_file: Path, as_json: bool) -> None:
    """Verify the ledger and show it."""
    config = site_config.load(config_file)
    with site_service.opened(config) as store:
        told = evidence_views.ledger(store, config)
    if as_json:
        say(told, True, "")
    else:
        evidence_views.show_ledger(told)


@ledger.command("verify")
@CONFIG
@HEAD
@JSON
def verify_ledger(config_file: Path, head: str, as_json: bool) -> None:
    """Verify the chain of the ledger, row by row, and print its head."""
    with site_service.opened(site_config.load(config_file)) as store:
        entries = store.ledger.entries()
        _say_whole("ledger", [entry.digest for entry in entries], head, as_json)


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
    config_file: Path, round_number: int | None, wanted: str | None, decode: bool, as_json: bool
) -> None:
    """Verify the egress ledger and show it: what left, what it meant, how many bytes, and its digest.

    --numbers says above the table what a value of 1 is. Values are clipped: moved into their column's public
    bounds, counted in grid steps from a public centre, and a record farther from it than the public radius is
    shortened to that. So they are whole grid steps, not the study's units; sums and products are shown in
    those units besides, and the rest has none. --json shows every row and number in full.
    """
    config = site_config.load(config_file)
    with site_service.opened(config) as store:
        rows = _chosen(store, round_number, wanted)
        if not decode:
            told = evidence_views.egress(rows, store.chatter.counts(), store.egress.head())
        else:
            reader = site_service.Reader(config.records)
            told = evidence_views.decoded(recomputed.again(store, _one_answer(rows), reader))
    if as_json:
        say(told, True, "")
    elif decode:
        evidence_views.show_decoded(told)
    else:
        evidence_views.show_egress(told)


@egress.command("verify")
@CONFIG
@HEAD
@JSON
def verify_egress(config_file: Path, head: str, as_json: bool) -> None:
    """Verify the chain, every question beside it, and that each charge of the budget has its row."""
    with site_service.opened(site_config.load(config_file)) as store:
        rows = store.egress.verify(store.ledger.ledger)
        _say_whole("egress ledger", [row.digest for row in rows], head, as_json)


@click.command()
def sbom() -> None:
    """List what is installed beside this program, as CycloneDX JSON."""
    say(installed(), True, "")


def _chosen(store: SiteStore, round_number: int | None, wanted: str | None) -> list[Row]:
    study = None if wanted is None else store.studies.find(wanted).plan
    rows = (row for row in store.egress.rows() if study in (None, row.study))
    return [row for row in rows if round_number in (None, row.round + 1)]


def _one_answer(rows: list[Row]) -> Row:
    """An answer that left twice (its first reply was lost) is one answer."""
    answers = {(row.study, row.round): row for row in rows if row.query}
    if len(answers) != 1:
        raise RequestError(
            Code.NOT_FOUND, f"{len(answers)} answers are chosen; name one with --study and --round"
        )
    return next(iter(answers.values()))


def _say_whole(name: str, digests: list[str], noted: str, as_json: bool) -> None:
    """`noted` is a head that somebody kept: rows can be cut off the end of a chain, and only it will tell."""
    chain = [GENESIS, *digests]
    if noted and noted not in chain:
        raise InternalError(
            Code.STORAGE,
            f"the {name} of {len(digests)} rows does not hold {noted}: since it was noted, rows were cut off "
            "or replaced",
        )
    since = len(digests) - chain.index(noted) if noted else None
    told = {"verified": True, "rows": len(digests), "head": chain[-1], "rows_since": since}
    later = "" if since is None else f", {since} of them after the head that was noted"
    say(told, as_json, f"the {name} is whole: {len(digests)} rows{later}\nhead {chain[-1]}")


COMMANDS = (ledger, egress, sbom)

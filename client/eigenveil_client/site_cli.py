"""eigenveil-site: what runs beside a site's records.

Exit codes: 0 done; 2 bad usage, study or argument; 3 bad records; 4 bad configuration;
5 budget exhausted; 6 the site's policy forbids it; 7 too few records; 8 not found; 9 conflict;
20 identity; 21 protocol; 23 version; 24 coordinator unreachable; 70 storage; 71 a bug;
130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from eigenveil.errors import Code, RequestError
from eigenveil.explain import explain as explain_plan
from eigenveil.identity import Role
from eigenveil.plan import Plan, make_plan, plan_from_json
from eigenveil.study_toml import parse_study
from eigenveil_client import site_config, site_service, site_views
from eigenveil_client.identity_store import enrol as enrol_here
from eigenveil_client.identity_store import named
from eigenveil_client.site_config import SiteConfig
from eigenveil_common.command import run, say
from eigenveil_common.files import read

CONFIG = click.option(
    "--config", "config_file", type=click.Path(path_type=Path), required=True, help="The site's site.toml."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


@click.group(help=f"Run one site of a federation.\n\n\b\n{(__doc__ or '').split(chr(10) * 2, 1)[1]}")
def group() -> None:
    """The commands of a site."""


@group.command()
@click.option("--dir", "folder", type=click.Path(path_type=Path), required=True, help="Folder to set up.")
@click.option("--name", required=True, help="The site's name in the federation.")
@click.option("--records", type=click.Path(path_type=Path), required=True, help="CSV or Parquet file.")
@click.option(
    "--minimum-records", type=int, default=20, show_default=True, help="Fewer usable ones: no answer."
)
@click.option(
    "--maximum-records", type=int, default=100_000, show_default=True, help="There will never be more."
)
@click.option(
    "--person-column", default="", help="The column that names the person; left out, every row is another."
)
@click.option(
    "--sites-per-person", type=int, default=1, show_default=True, help="Sites that may know one person."
)
@click.option("--budget-epsilon", type=float, default=10.0, show_default=True)
@click.option("--budget-delta", type=float, default=1e-6, show_default=True)
@click.option("--max-epsilon-per-study", type=float, default=5.0, show_default=True)
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    default=site_config.ALGORITHMS,
    show_default=True,
    help="What this site answers for; give it once for each.",
)
@JSON
def init(folder: Path, name: str, records: Path, as_json: bool, **limits: Any) -> None:
    """Write DIR/site.toml."""
    path = site_config.create(folder, name=name, records=records, **limits)
    say(
        {"config": str(path), "name": name},
        as_json,
        f"wrote {path}\nnext: eigenveil-site enrol --config {path} --join FILE",
    )


@group.command()
@CONFIG
@click.option("--join", "join_file", type=click.Path(path_type=Path), required=True, help="Join file.")
@JSON
def enrol(config_file: Path, join_file: Path, as_json: bool) -> None:
    """Make this site's key, here, and get it certified with a one-time join file."""
    config = site_config.load(config_file)
    stored = site_service.check_role(enrol_here(join_file, config.identity, Role.SITE), config.name)
    say(
        {
            "identity": stored.identity.uri,
            "coordinator": stored.coordinator,
            "certificate_ends": stored.expires.isoformat(),
        },
        as_json,
        f"enrolled as {stored.identity.uri} until {stored.expires:%Y-%m-%d %H:%M} UTC\n"
        f"next: eigenveil-site check --config {config_file}",
    )


@group.command()
@CONFIG
@click.option("--study", "study_file", type=click.Path(path_type=Path), help="Check the records against it.")
@JSON
def check(config_file: Path, study_file: Path | None, as_json: bool) -> int:
    """Check the configuration, the identity and the records, here; nothing is sent."""
    config = site_config.load(config_file)
    plan = None if study_file is None else _plan_of(config, study_file)
    findings = site_service.check(config, plan)
    say(
        {"ok": all(f.ok for f in findings), "findings": [f.as_dict() for f in findings]},
        as_json,
        "\n".join(f.line() for f in findings),
    )
    return next((f.exit_code for f in findings if not f.ok), 0)


@group.command()
@CONFIG
@click.argument("study")
@JSON
def explain(config_file: Path, study: str, as_json: bool) -> None:
    """Say what STUDY (a study file, or the digest of a plan seen here) asks, reveals and costs."""
    config = site_config.load(config_file)
    plan = _plan_of(config, Path(study)) if Path(study).exists() else _plan_seen(config, study)
    told = explain_plan(plan) | {
        "policy": [{"rule": v.rule, "passed": v.passed, "text": v.text} for v in config.policy.verdicts(plan)]
    }
    if as_json:
        say(told, True, "")
    else:
        site_views.show_explanation(told)


@group.command()
@CONFIG
@JSON
def serve(config_file: Path, as_json: bool) -> None:
    """Serve until SIGTERM or SIGINT: ask the coordinator for work and answer it."""
    del as_json  # the one line on standard output is JSON in any case
    site_service.serve(site_config.load(config_file))


@group.command()
@CONFIG
@JSON
def ledger(config_file: Path, as_json: bool) -> None:
    """Verify and show this site's privacy budget: every reservation, charge and settlement."""
    config = site_config.load(config_file)
    with site_service.opened(config) as store:
        told = site_views.ledger(store, config)
    if as_json:
        say(told, True, "")
    else:
        site_views.show_ledger(told)


@group.command()
@CONFIG
@click.option("--round", "round_number", type=int, help="Only this round.")
@click.option("--study", "prefix", help="Only this study: the first characters of its digest.")
@JSON
def egress(config_file: Path, round_number: int | None, prefix: str | None, as_json: bool) -> None:
    """Verify and show what has left this site: one row for every message about a study."""
    config = site_config.load(config_file)
    with site_service.opened(config) as store:
        told = site_views.egress(store, round_number, prefix)
    if as_json:
        say(told, True, "")
    else:
        site_views.show_egress(told)


@group.command()
@CONFIG
@click.argument("study")
@JSON
def settle(config_file: Path, study: str, as_json: bool) -> None:
    """End STUDY (the digest of a plan seen here) for good, and free what it had set aside.

    For a study that its coordinator will never end. What it has spent stays spent, and this site
    answers it no more. Stop the daemon first.
    """
    config = site_config.load(config_file)
    told = site_views.settled(site_service.settle(config, study), config)
    say(told, as_json, site_views.settled_words(told))


def _plan_of(config: SiteConfig, path: Path) -> Plan:
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


def _plan_seen(config: SiteConfig, prefix: str) -> Plan:
    with site_service.opened(config) as store:
        return plan_from_json(store.find(prefix).plan_json)


def main() -> int:
    """Run the command line."""
    return run(group)


if __name__ == "__main__":
    sys.exit(main())

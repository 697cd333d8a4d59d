"""`eigenveil doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from eigenveil_client.analyst.profile import default_profile, json_option, profile_option, proxy_rule
from eigenveil_client.connection.doctor import analyst_checks
from eigenveil_common.doctor import show


@click.command()
@profile_option
@json_option
def doctor(profile: Path | None, as_json: bool) -> int:
    """Check your profile and the way to the coordinator, one line each.

    Nothing is sent but a greeting. Exit code 1 if a check failed.
    """
    folder = profile or default_profile()
    return show(analyst_checks(folder, lambda: proxy_rule(folder)), as_json)

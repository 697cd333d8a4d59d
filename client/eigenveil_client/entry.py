"""Entry points of `eigenveil` and `eigenveil-site`."""

from __future__ import annotations

from eigenveil_common.start import start


def analyst() -> int:
    return start("eigenveil_client.cli")


def site() -> int:
    return start("eigenveil_client.site.commands.main")

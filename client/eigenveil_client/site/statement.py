"""What this site states of itself to the federation: what site.toml says and who is trusted, nothing of its
records [R23]."""

from __future__ import annotations

from dataclasses import asdict, replace

from eigenveil.dictionary.rules import ANY
from eigenveil.dictionary.statement import SiteStatement
from eigenveil.errors import Code, RequestError
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.peers.rule import allowed_trust
from eigenveil_client.site.policy import Approval


def statement_of(config: SiteConfig) -> SiteStatement:
    """The statement of a site that is configured so.

    Raises:
        RequestError: code `bad-config`, what it offers is too much, or has names that cannot be shown.
    """
    asks, rules = config.policy.approval is Approval.ASK, asdict(config.policy.quality)
    trust = allowed_trust(config.identity, config.policy.secrecy)
    try:
        allows = replace(config.policy.stated, trust=trust)
        return SiteStatement(offers=offered(config), asks=asks, allows=allows, **rules)
    except RequestError as problem:
        raise RequestError(Code.BAD_CONFIG, f"offers: {problem}") from problem


def offered(config: SiteConfig) -> tuple[str, ...] | None:
    """The columns that a site says it has. None: it does not say; so too where it means every column and
    lists them nowhere, because the records themselves are not asked."""
    if not config.offers:
        return None
    if ANY not in config.offers:
        return config.offers
    return None if ANY in config.policy.columns else config.policy.columns

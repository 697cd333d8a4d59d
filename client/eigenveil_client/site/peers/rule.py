"""Whether every site that a study invites is one that people here have confirmed [R28]."""

from __future__ import annotations

from pathlib import Path

from eigenveil.dictionary.verdict import ForbiddenByRule, Verdict
from eigenveil.protocol.plan import Plan
from eigenveil_client.site.peers.keys import made
from eigenveil_client.site.peers.roster import Roster

RULE = "peers"


def verdicts(folder: Path, name: str, plan: Plan) -> tuple[Verdict, ...]:
    """What the roster in an identity's `folder` says of `plan`, for the site `name`; nothing where the
    coordinator sees each site's numbers, and masks have no part. Raises as `Roster`."""
    if not plan.masked:
        return ()
    if not made(folder):
        text = "this site has no card yet; make it: eigenveil-site peers export --config site.toml"
        return (Verdict(rule=RULE, passed=False, text=text),)
    others = set(plan.study.federation.sites) - {name}
    missing = sorted(others - Roster(folder).confirmed().keys())
    if missing:
        text = (
            f"nobody here has confirmed the card of {', '.join(missing)}: telephone each, then "
            f"eigenveil-site peers confirm {missing[0]} --config site.toml"
        )
        return (Verdict(rule=RULE, passed=False, text=text),)
    return (Verdict(rule=RULE, passed=True, text=f"the cards of {', '.join(sorted(others))} are confirmed"),)


def require(folder: Path, name: str, plan: Plan) -> None:
    """Insist on it.

    Raises:
        ForbiddenByRule: naming the sites that are missing and the command; or as `Roster`.
    """
    for verdict in verdicts(folder, name, plan):
        if not verdict.passed:
            raise ForbiddenByRule(RULE, f"this site cannot hide its numbers in it: {verdict.text}")

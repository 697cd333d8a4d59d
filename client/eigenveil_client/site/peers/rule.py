"""The rules about a study's other sites: who they are [R28], and who may see this site's numbers [R29]."""

from __future__ import annotations

from pathlib import Path

from eigenveil.dictionary.rules import SEES
from eigenveil.dictionary.verdict import ForbiddenByRule, Verdict
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Trust
from eigenveil_client.site.peers.keys import made
from eigenveil_client.site.peers.kind import PEERS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.trust import KNOWN, TrustRules

RULE = "peers"


def verdicts(folder: Path, name: str, plan: Plan, secrecy: TrustRules) -> tuple[Verdict, ...]:
    """What the roster in an identity's `folder` says of `plan`, for the site `name`. Raises as `Roster`."""
    return (*_about_trust(folder, plan, secrecy), *_about_peers(folder, name, plan))


def allowed_trust(folder: Path, secrecy: TrustRules) -> tuple[str, ...]:
    """The kinds of trust that studies may ask for: as site.toml states; else masked studies alone from the
    first card of another site that people here compared, whatever became of it since. Raises as `Roster`."""
    if secrecy.trust:
        return secrecy.trust
    return (Trust.SECURE_AGGREGATION.value,) if Roster(PEERS, folder).held().ever_confirmed else KNOWN


def _about_trust(folder: Path, plan: Plan, secrecy: TrustRules) -> tuple[Verdict, ...]:
    """The rule where site.toml states no trust; where it states any, that speaks (`StatedRules.verdicts`)."""
    if secrecy.trust:
        return ()
    passed = plan.study.trust.value in allowed_trust(folder, secrecy)
    why = "" if passed else (
        "; people here have confirmed another site's card, so no other studies are answered: state trust = "
        '"secure-aggregation" in the study, or trust = ["central", "secure-aggregation"] in site.toml'
    )  # fmt: skip
    text = f"{plan.study.trust.value}: {SEES[plan.study.trust]}{why}"
    return (Verdict(rule="trust", passed=passed, text=text),)


def _about_peers(folder: Path, name: str, plan: Plan) -> tuple[Verdict, ...]:
    """Nothing where the coordinator sees each site's numbers, and masks have no part."""
    if not plan.masked:
        return ()
    if not made(folder):
        text = "this site has no card yet; make it: eigenveil-site peers export --config site.toml"
        return (Verdict(rule=RULE, passed=False, text=text),)
    others = set(plan.study.federation.sites) - {name}
    missing = sorted(others - Roster(PEERS, folder).confirmed().keys())
    if missing:
        text = (
            f"nobody here has confirmed the card of {', '.join(missing)}: telephone each, then "
            f"eigenveil-site peers confirm {missing[0]} --config site.toml"
        )
        return (Verdict(rule=RULE, passed=False, text=text),)
    return (Verdict(rule=RULE, passed=True, text=f"the cards of {', '.join(sorted(others))} are confirmed"),)


def require(folder: Path, name: str, plan: Plan) -> None:
    """Insist that every site that a masked study invites is one that people here have confirmed.

    Raises:
        ForbiddenByRule: naming the sites that are missing and the command; or as `Roster`.
    """
    for verdict in _about_peers(folder, name, plan):
        if not verdict.passed:
            raise ForbiddenByRule(RULE, f"this site cannot hide its numbers in it: {verdict.text}")


def require_trust(folder: Path, plan: Plan, secrecy: TrustRules) -> None:
    """Insist on a masked study where peers were ever confirmed and site.toml does not say otherwise.

    Raises:
        ForbiddenByRule: rule `trust`; or as `Roster`.
    """
    for verdict in _about_trust(folder, plan, secrecy):
        if not verdict.passed:
            raise ForbiddenByRule(
                verdict.rule, f"the site's policy forbids this study ({verdict.rule}: {verdict.text})"
            )

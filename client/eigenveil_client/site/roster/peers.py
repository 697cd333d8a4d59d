"""Key cards of this site and of other sites: private keys, and rules on invited sites [R28] and on who may
see this site's numbers [R29]."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.dictionary.site_rules import SEES, ForbiddenByRule, Verdict
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.key_cards import SignedSiteKeyCard, SiteKeyCard
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Trust
from eigenveil_client.connection.identity import folder_identity
from eigenveil_client.connection.key_files import KeyFile
from eigenveil_client.site.policy_sections import KNOWN, TrustRules
from eigenveil_client.site.roster.pins import PinStatus, RosterKind
from eigenveil_client.site.roster.roster import Roster
from eigenveil_common.doctor import Check, ok, warn
from eigenveil_common.files import path_exists

NAME = "peer.key"
NO_KEYS = "this site has no key card yet; make it: eigenveil-site peers export --config site.toml"
SIGNING = "signing"
KEYS_LOST_ADVICE = (
    "run `eigenveil-site peers export`: each other site must then confirm the new key card by telephone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKeys:
    """Private key of this site, which signs its key for each masked study, and the key card for other sites.

    It is stored beside the site's identity and stays the same when a certificate is renewed, because other
    sites have confirmed it."""

    signing: Ed25519PrivateKey
    card: SiteKeyCard

    @classmethod
    def read(cls, folder: Path) -> SiteKeys:
        """Return the keys in an identity's folder. Raises RequestError: code `not-found`, there are none yet;
        or as `site_identity` and `KeyFile.read`."""
        file = _key_file(folder)
        if not file.made:
            raise RequestError(Code.NOT_FOUND, NO_KEYS)
        raw = file.read()
        try:
            signing = Ed25519PrivateKey.from_private_bytes(raw[SIGNING])
        except ValueError as problem:
            raise file.damaged() from problem
        card = SiteKeyCard(
            federation=file.owner.federation,
            site=file.owner.name,
            signing=signing.public_key().public_bytes_raw(),
        )
        return cls(signing=signing, card=card)

    @classmethod
    def make(cls, folder: Path) -> SiteKeys:
        """Return the keys; make them, durable on return, if there are none. Raises as `read` and
        `KeyFile.make`."""
        _key_file(folder).make(lambda: {SIGNING: Ed25519PrivateKey.generate().private_bytes_raw()})
        return cls.read(folder)

    @property
    def signed(self) -> SignedSiteKeyCard:
        """Signed key card for other sites; the same bytes each time."""
        return SignedSiteKeyCard.of(self.card, self.signing.sign)


def site_identity(folder: Path) -> Identity:
    """Return the site's identity in `folder`, also if its certificate has expired; else raise code
    `bad-config`."""
    owner = folder_identity(folder)
    if owner is None or owner.role is not Role.SITE:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{folder} holds no site's identity; enrol with a join file from the coordinator",
        )
    return owner


def has_keys(folder: Path) -> bool:
    """Return True if this folder has keys. Raises InternalError, code `storage`."""
    return path_exists(folder / NAME)


def _key_file(folder: Path) -> KeyFile:
    owner = site_identity(folder)
    return KeyFile(folder=folder, name=NAME, owner=owner, keys=(SIGNING,), recovery=KEYS_LOST_ADVICE)


def own_card(folder: Path) -> SiteKeyCard | None:
    """Return this site's key card, if it has one. Raises as `SiteKeys.read`."""
    return SiteKeys.read(folder).card if has_keys(folder) else None


def card_row(card: SiteKeyCard) -> dict[str, Any]:
    """Return this site's key card with the fingerprint to read out to other sites."""
    return {
        "site": card.site,
        "federation": card.federation,
        "key_card": card.digest,
        "fingerprint": card.fingerprint,
    }


def _heading(view: dict[str, Any]) -> str:
    own, todo = view["site_card"], "none yet; make it: eigenveil-site peers export"
    return f"this site's key card: {own['fingerprint'] + '  (' + own['site'] + ')' if own else todo}"


PEERS: RosterKind[SiteKeyCard] = RosterKind(
    entries="peers",
    owner="site",
    reader="the people of {}",
    read=SignedSiteKeyCard,
    event="peer-key-changed",
    change_effect="nothing more is sent",
    without="If nothing is to be answered together with it",
    duplicate_key_advice="one folder was copied from the other. At the copy, move peer.key away and run: "
    "eigenveil-site peers export",
    own=own_card,
    header=lambda folder: {"site_card": card_row(SiteKeys.read(folder).card) if has_keys(folder) else None},
    heading=_heading,
    empty="no other site's key card is here: eigenveil-site peers import FILE",
    changed="changed: nothing is sent until a person decides; see eigenveil-site check",
    confirmed="",
    resolved=" Start the daemon again, if it ended.",
)
RULE = "peers"


def verdicts(folder: Path, name: str, plan: Plan, secrecy: TrustRules) -> tuple[Verdict, ...]:
    """Return the verdicts on `plan` by the roster in an identity's `folder`, for site `name`."""
    return (*_about_trust(folder, plan, secrecy), *_about_peers(folder, name, plan))


def allowed_trust(folder: Path, secrecy: TrustRules) -> tuple[str, ...]:
    """Return the trust values that studies may state: those of site.toml. Without any, only masked studies
    are allowed once a key card of another site was confirmed, also if removed since. Raises as `Roster`."""
    if secrecy.trust:
        return secrecy.trust
    return (Trust.SECURE_AGGREGATION.value,) if Roster(PEERS, folder).content().ever_confirmed else KNOWN


def _about_trust(folder: Path, plan: Plan, secrecy: TrustRules) -> tuple[Verdict, ...]:
    """Return the verdict if site.toml states no trust; otherwise `StatedRules.verdicts` applies."""
    if secrecy.trust:
        return ()
    passed = plan.study.trust.value in allowed_trust(folder, secrecy)
    why = "" if passed else (
        "; another site's key card is confirmed here, so no other studies are answered: state trust = "
        '"secure-aggregation" in the study, or trust = ["central", "secure-aggregation"] in site.toml'
    )  # fmt: skip
    text = f"{plan.study.trust.value}: {SEES[plan.study.trust]}{why}"
    return (Verdict(rule="trust", passed=passed, text=text),)


def _about_peers(folder: Path, name: str, plan: Plan) -> tuple[Verdict, ...]:
    """Return the verdict on the invited sites of a masked study; none for other studies."""
    if not plan.masked:
        return ()
    if not has_keys(folder):
        return (Verdict(rule=RULE, passed=False, text=NO_KEYS),)
    others = set(plan.study.federation.sites) - {name}
    missing = sorted(others - Roster(PEERS, folder).confirmed().keys())
    text = f"the cards of {', '.join(sorted(others))} are confirmed" if not missing else (
        f"the key card of {', '.join(missing)} is not confirmed here: telephone each, then "
        f"eigenveil-site peers confirm {missing[0]} --config site.toml"
    )  # fmt: skip
    return (Verdict(rule=RULE, passed=not missing, text=text),)


def require(folder: Path, name: str, plan: Plan) -> None:
    """Require that each site invited to a masked study has a confirmed key card here. Raises ForbiddenByRule:
    naming the sites that are missing and the command; or as `Roster`."""
    for verdict in _about_peers(folder, name, plan):
        if not verdict.passed:
            raise ForbiddenByRule(RULE, f"this site cannot mask its numbers in this study: {verdict.text}")


def require_trust(folder: Path, plan: Plan, secrecy: TrustRules) -> None:
    """Require a masked study if peers were ever confirmed and site.toml states no trust. Raises
    ForbiddenByRule: rule `trust`; or as `Roster`."""
    for verdict in _about_trust(folder, plan, secrecy):
        if not verdict.passed:
            text = f"the site's policy forbids this study ({verdict.rule}: {verdict.text})"
            raise ForbiddenByRule(verdict.rule, text)


NO_STUDY = 'no study can be answered: site.toml allows trust = "secure-aggregation" alone'


def export_text(card: SiteKeyCard, out: Path) -> str:
    """Return what to do with the exported file and with the fingerprint, which is not in it."""
    return (
        f"wrote {out}: send it to the people of the other sites, by mail if you like; it holds no secret\n"
        f"The digits of {card.site} in federation {card.federation}:\n\n"
        f"    {card.fingerprint}\n\n"
        "Do not send these digits. Each other site calls you, at a number that did not come with the file, "
        "and types the digits that you read out. This proves that the file is yours."
    )


def check_peers(folder: Path, secrecy: TrustRules) -> Check:
    """Check if masked studies can be answered, and if others are answered. Raises as `own_card` and
    `Roster.check_unchanged`."""
    roster = Roster(PEERS, folder)
    roster.check_unchanged()
    own, content = own_card(folder), roster.content()
    masked_only = secrecy.trust == (Trust.SECURE_AGGREGATION.value,)
    if own is None and not content.pins and not content.ever_confirmed:
        if masked_only:
            return warn("peers", NO_STUDY, "make this site's key card: eigenveil-site peers export")
        return ok("peers", "no key card of this site or of others: the coordinator sees every answer")
    count = Counter(pin.status for pin in content.pins.values())
    answered = f"site.toml allows trust = {', '.join(secrecy.trust)}" if secrecy.trust else (
        "only masked studies are answered" if content.ever_confirmed
        else "the coordinator sees answers to central studies"
    )  # fmt: skip
    confirmed, unconfirmed = count[PinStatus.CONFIRMED], count[PinStatus.IMPORTED]
    text = f"cards of other sites: {confirmed} confirmed, {unconfirmed} not confirmed; {answered}"
    if own is None:
        return warn("peers", f"{text}; this site has none", "make it: eigenveil-site peers export")
    if masked_only and not content.pins:
        return warn("peers", NO_STUDY, "import key cards of other sites: eigenveil-site peers import FILES")
    if unconfirmed:
        return warn("peers", text, "telephone each site: eigenveil-site peers confirm NAME")
    return ok("peers", text)

"""The secrets that masks are made of, for an attempt whose sites are those that people here know [R28]."""

from __future__ import annotations

from eigenveil.errors import Code, PeerError, RequestError, spoken
from eigenveil.protocol.plan import Plan
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil.secure_aggregation.card import Card
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.site.peers.keys import OwnKeys
from eigenveil_client.site.peers.kind import PEERS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_common.log import alarm


class PeerChanged(RequestError):
    """The coordinator showed another card than a confirmed one: the process must end, and nothing be sent,
    until a person has decided."""


class PeerSecrets:
    """Checks attempts for one site, by the cards that its people have confirmed."""

    def __init__(self, member: StoredIdentity) -> None:
        self._name = member.identity.name
        self._roster = Roster(PEERS, member.folder)
        self._shared: dict[tuple[str, str], bytes] = {}  # by the digests of both cards

    def of(self, plan: Plan, attempt: Attempt, keys: OwnKeys) -> dict[str, bytes]:
        """The secrets shared with all other members, by name, if the answer may be masked for them.

        Raises:
            PeerError: code `protocol`.
            PeerChanged: another card of a confirmed peer is in it; that is written down.
        """
        others = {name: digest for name, digest in attempt.members.items() if name != self._name}
        confirmed = self._roster.confirmed()
        for name, digest in others.items():
            if name in confirmed and confirmed[name].digest != digest:
                self._changed(name, digest)
                raise _refused(attempt, f"people here have just decided about the card of {name}")
        self._check_set(plan, attempt, keys)
        unknown = sorted(others.keys() - confirmed.keys())
        if unknown:
            alarm("unknown-peer", study=attempt.plan, round=attempt.round, sites=", ".join(unknown))
            raise _refused(attempt, f"nobody here has confirmed the card of {', '.join(unknown)}")
        return {name: self._secret(keys, confirmed[name]) for name in others}

    def _secret(self, keys: OwnKeys, card: Card) -> bytes:
        """Computed once: it stays the same, and with many sites is most of what a small round takes."""
        pair = keys.card.digest, card.digest
        if pair not in self._shared:
            self._shared[pair] = keys.secret_with(card)
        return self._shared[pair]

    def _check_set(self, plan: Plan, attempt: Attempt, keys: OwnKeys) -> None:
        """What the plan says of it, whoever they are: to a plan with a smaller quorum than the minimum of
        site.toml this site agrees no more, and that is checked anew for each question."""
        federation, members = plan.study.federation, attempt.members
        if members.get(self._name) != keys.card.digest:
            raise _refused(attempt, "this site is not in it with its own card")
        if strange := sorted(members.keys() - set(federation.sites)):
            raise _refused(attempt, f"the study does not invite {', '.join(strange)}")
        if absent := sorted(set(federation.required) - members.keys()):
            raise _refused(attempt, f"the study requires {', '.join(absent)}")
        if len(members) < federation.least:
            least = f"{federation.least} at least are to be added"
            raise _refused(attempt, f"it has {len(members)} sites, and {least}")

    def _changed(self, name: str, digest: str) -> None:
        self._roster.mark_changed(name, digest)
        try:
            self._roster.check_unchanged()
        except RequestError as problem:
            raise PeerChanged(problem.code, str(problem)) from problem


def _refused(attempt: Attempt, why: str) -> PeerError:
    what = f"the set of sites of attempt {attempt.number} at {spoken(attempt.round)}"
    return PeerError(Code.PROTOCOL, f"{what} is refused: {why}; nothing was charged")

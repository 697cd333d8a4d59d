"""Checks of a round at a site: its query, by a replica of the study's session [P25], and its set of sites.
The next query follows from the plan and the releases, which the coordinator signs. So it can choose no query
or cost, only state a release that was never drawn, under its signature."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager

from eigenveil.errors import Code, PeerError, RequestError, round_label
from eigenveil.key_cards import SiteKeyCard
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import RoundStatement, SignedRound
from eigenveil.protocol.wire import query_from_proto, query_to_proto, round_from_proto, round_to_proto
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.secure_aggregation.study_keys import SignedStudyKey, StudyKey
from eigenveil.session import Session
from eigenveil.signatures import Keys, ReleaseKeys
from eigenveil.study.composition import MAX_ROUNDS
from eigenveil_client.connection.identity import CurrentIdentity
from eigenveil_client.site.roster.peers import PEERS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.coordinator_statements import Transcript, VerifiedStatement
from eigenveil_client.site.state.study_keys import OwnStudyKey
from eigenveil_common.log import log_error
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def refuse_if(broken: bool, message: str) -> None:
    """Raise PeerError, code `protocol`, if the coordinator has broken the protocol."""
    if broken:
        raise PeerError(Code.PROTOCOL, message)


class SessionReplica:
    """Session of `plan`, replayed from the stored statements. A query is signed by a key that is accepted
    now. It names the release before it, which names the one before, so an earlier key is enough for these.
    Unusable after a method has raised. Raises
    EigenveilError: the stored statements are inconsistent."""

    def __init__(self, plan: Plan, keys: ReleaseKeys, transcript: Transcript) -> None:
        self._plan = plan
        self._keys = keys
        self._session = Session(plan)
        self._ledger = ("", 0)
        self._unsaved: list[VerifiedStatement] = []
        for message in transcript.releases(plan.digest):
            self._follow_release(self._verify(message.signed_round, self._keys.known), message)
        self.mark_saved()

    @property
    def release_count(self) -> int:
        """Number of releases that the session has seen."""
        return len(self._session.releases)

    def unsaved(self) -> list[VerifiedStatement]:
        """Return the statements to store before an answer or a refusal is sent."""
        return list(self._unsaved)

    def mark_saved(self) -> None:
        self._unsaved.clear()

    def follow(self, messages: Iterable[pb.SealedRound]) -> None:
        """Feed the releases that the coordinator states; repeated ones must be equal.

        Raises:
            PeerError: code `identity` or `protocol`: not signed, contradictory, or not the next one.
            EigenveilError: they lead to an invalid query."""
        for message in messages:
            stated = self._verify(message.signed_round, self._keys.known)
            with self._save_refused(stated, message.signed_round):
                if stated.round >= self.release_count:
                    self._follow_release(stated, message)
                    continue
                known = self._session.releases[stated.round]
                refuse_if(
                    (stated.query, stated.release) != (known.query, known.digest),
                    f"the coordinator signed two different releases of {round_label(stated.round)}; both are "
                    "stored as evidence",
                )

    def expect(self, round_query: RoundQuery, signed: pb.SignedRound) -> None:
        """Require that `round_query` is the next query of this study, and signed by the coordinator. Raises
        PeerError, code `identity` or `protocol`."""
        stated = self._verify(signed, self._keys.accepted)
        with self._save_refused(stated, signed):
            expected = (round_query.round, round_query.digest, "")
            found = (stated.round, stated.query, stated.release)
            refuse_if(found != expected, "the signed statement is about another query")
            self._check_order(stated)
            self._session.adopt(round_query)
        self._add_unsaved(stated, pb.SealedRound(signed_round=_signed_part(signed)), followed=True)

    @contextmanager
    def _save_refused(self, stated: RoundStatement, signed: pb.SignedRound) -> Iterator[None]:
        """Store a refused statement without the rest of its message, which is not verified."""
        try:
            yield
        except Exception:
            self._add_unsaved(stated, pb.SealedRound(signed_round=_signed_part(signed)), followed=False)
            raise

    def _add_unsaved(self, stated: RoundStatement, message: pb.SealedRound, *, followed: bool) -> None:
        self._unsaved.append(VerifiedStatement(statement=stated, message=message, followed=followed))

    def _follow_release(self, stated: RoundStatement, message: pb.SealedRound) -> None:
        """Feed a release. Its checked parts are stored, and the query if its wording differs from this
        program's: a replay needs it."""
        self._check_order(stated)
        pending = self._session.pending
        if pending is not None and stated.query != pending.digest and message.HasField("query"):
            self._session.adopt(query_from_proto(message.query))
            pending = self._session.pending
        if not stated.release or pending is None or stated.query != pending.digest:
            raise PeerError(
                Code.PROTOCOL,
                f"the release of {round_label(stated.round)} does not belong to the query that follows from "
                "the plan and the earlier releases",
            )
        release = round_from_proto(message, stated)
        of_round = f"the release of {round_label(stated.round)}"
        refuse_if(not self._session.fits(release), f"{of_round} does not fit its query")
        signed = SignedRound(
            signed_json=message.signed_round.signed_json, signature=message.signed_round.signature
        )
        checked = round_to_proto(release, signed)
        if self._session.pending_differs:
            checked.query.CopyFrom(query_to_proto(pending))
        try:
            self._session.feed(release)
        except Exception as problem:  # of the session: the study is invalid
            reason = f"{type(problem).__name__}: {problem}"
            raise PeerError(Code.PROTOCOL, f"{of_round} leads to no valid query ({reason})") from problem
        self._add_unsaved(stated, checked, followed=True)

    def _check_order(self, stated: RoundStatement) -> None:
        """Require a statement about the next round, after the last release here, with a ledger that did not
        shrink."""
        releases = self._session.releases
        after = releases[-1].digest if releases else ""
        refuse_if(
            (stated.round, stated.after) != (len(releases), after),
            f"{round_label(stated.round)} was stated when {round_label(len(releases))} was due, or after "
            "another release than the one here; was the coordinator restored from an old backup?",
        )
        self._check_ledger(stated)

    def _check_ledger(self, stated: RoundStatement) -> None:
        row, size = self._ledger
        refuse_if(
            stated.size < size or (stated.size == size and stated.ledger != row),
            f"the coordinator's ledger went from {size} rows to {stated.size} within one study, or its rows "
            "changed",
        )
        self._ledger = (stated.ledger, stated.size)

    def _verify(self, signed: pb.SignedRound, keys: Keys) -> RoundStatement:
        stated = SignedRound(signed_json=signed.signed_json, signature=signed.signature).check(keys)
        unknown = stated.plan != self._plan.digest or stated.round >= MAX_ROUNDS
        refuse_if(unknown, "a signed statement is about another plan or an unknown round")
        return stated


def _signed_part(signed: pb.SignedRound) -> pb.SignedRound:
    """Return the signed part of a message only."""
    return pb.SignedRound(signed_json=signed.signed_json, signature=signed.signature)


class PeerChanged(RequestError):
    """The coordinator sent another key card than the confirmed one. The process must end without sending
    anything, until a person has decided."""


ReceivedKey = tuple[SignedStudyKey, StudyKey]  # a signed statement, and what it states


class PeerSecrets:
    """Secrets for the masks of an attempt, shared only with sites that people here have confirmed [R28], by
    keys that last for one study [R36]."""

    def __init__(self, member: CurrentIdentity) -> None:
        self._name = member.identity.name
        self._roster = Roster(PEERS, member.folder)
        self._received: dict[str, dict[str, ReceivedKey]] = {}  # keys of other sites by plan and digest
        self._verified: set[tuple[bytes, SignedStudyKey]] = set()  # with the key that signed it
        self._shared: dict[tuple[str, str], bytes] = {}  # by the digests of both keys

    def missing(self, attempt: Attempt) -> list[str]:
        """Return the digests of the keys of other members that were not received yet."""
        received = self._received.get(attempt.plan, {})
        return sorted(
            key for name, key in attempt.members.items() if name != self._name and key not in received
        )

    def receive(self, attempt: Attempt, keys: Iterable[SignedStudyKey]) -> None:
        """Note the keys of an attempt's sites that the coordinator passed on, and no others; they are checked
        when they are used."""
        received = self._received.setdefault(attempt.plan, {})
        for signed in keys:
            fits = len(signed.signed_json) <= signed.most_bytes
            if fits and (stated := signed.read()).digest in attempt.members.values():
                received[stated.digest] = signed, stated
        for gone in received.keys() - set(attempt.members.values()):
            del received[gone]

    def retain(self, plans: Container[str]) -> None:
        """Forget the keys of all other studies, and all secrets if there were any."""
        for plan in [stored for stored in self._received if stored not in plans]:
            self.forget(plan)

    def forget(self, plan: str) -> None:
        """Forget the keys of a study, and all secrets."""
        self._received.pop(plan, None)
        self._verified.clear()
        self._shared.clear()

    def shared_secrets(self, plan: Plan, attempt: Attempt, own: OwnStudyKey) -> dict[str, bytes]:
        """Return the secrets shared with all other members, by name, if the answer may be masked for them.

        Raises:
            PeerError: code `protocol`, or `identity`: a key is not signed by its site's confirmed card.
            PeerChanged: a member's key is of another key card than the confirmed one; it is stored."""
        self._check_set(plan, attempt, own)
        received = self._received.get(attempt.plan, {})
        if missing := self.missing(attempt):
            raise _attempt_refused(attempt, f"{len(missing)} keys of its sites did not come with it")
        others = {name: received[key] for name, key in attempt.members.items() if name != self._name}
        stated = {name: key for name, (_, key) in others.items()}
        confirmed = self._roster.confirmed()
        self._check_cards(attempt, stated, confirmed)
        if unknown := sorted(others.keys() - confirmed.keys()):
            log_error("unknown-peer", study=attempt.plan, round=attempt.round, sites=", ".join(unknown))
            raise _attempt_refused(attempt, f"the key card of {', '.join(unknown)} is not confirmed here")
        for name, (signed, _) in others.items():
            try:
                self._check_signature(signed, confirmed[name].signing)
            except PeerError as problem:
                why = f"the key of {name} for the study is not signed by its confirmed card"
                raise _attempt_refused(attempt, why) from problem
        return {name: self._secret(own, key) for name, key in stated.items()}

    def _check_signature(self, signed: SignedStudyKey, signing: bytes) -> None:
        """Require that a card's key signed these bytes; computed once for both. Raises as
        `SignedStudyKey.check`."""
        if (signing, signed) not in self._verified:
            signed.check(signing)
            self._verified.add((signing, signed))

    def _check_cards(
        self, attempt: Attempt, stated: Mapping[str, StudyKey], confirmed: Mapping[str, SiteKeyCard]
    ) -> None:
        """Require keys of these sites for this study, under the confirmed cards."""
        for name, key in stated.items():
            if (key.plan, key.site) != (attempt.plan, name):
                raise _attempt_refused(attempt, f"the key of {name} is of another site or study")
            if name in confirmed and confirmed[name].digest != key.card:
                self._roster.mark_changed(name, key.card)
                try:
                    self._roster.check_unchanged()
                except RequestError as problem:
                    raise PeerChanged(problem.code, str(problem)) from problem
                raise _attempt_refused(attempt, f"people here have just decided about the key card of {name}")

    def _secret(self, own: OwnStudyKey, other: StudyKey) -> bytes:
        """Return the shared secret, computed once: with many sites it dominates the time of a small round."""
        digests = own.stated.digest, other.digest
        if digests not in self._shared:
            self._shared[digests] = own.secret_with(other)
        return self._shared[digests]

    def _check_set(self, plan: Plan, attempt: Attempt, own: OwnStudyKey) -> None:
        """Check the set of sites against the plan, whose quorum the policy checks for each query."""
        federation, members = plan.study.federation, attempt.members
        if members.get(self._name) != own.stated.digest:
            raise _attempt_refused(attempt, "this site's own key for the study is not in it")
        if strange := sorted(members.keys() - set(federation.sites)):
            raise _attempt_refused(attempt, f"the study does not invite {', '.join(strange)}")
        if absent := sorted(set(federation.required) - members.keys()):
            raise _attempt_refused(attempt, f"the study requires {', '.join(absent)}")
        if len(members) < federation.least:
            least = f"the study needs at least {federation.least}"
            raise _attempt_refused(attempt, f"it has {len(members)} sites, and {least}")


def _attempt_refused(attempt: Attempt, reason: str) -> PeerError:
    attempt_text = f"the set of sites of attempt {attempt.number} at {round_label(attempt.round)}"
    return PeerError(Code.PROTOCOL, f"{attempt_text} is refused: {reason}; nothing was charged")

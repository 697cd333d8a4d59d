"""Masked questions opened: with the set of the round before, or with nobody ready yet, and after a crash with
the attempt that is stored [R29]."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eigenveil.accounting.zcdp import NOTHING
from eigenveil.protocol.wire import query_to_proto
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil_server.following.session import StudySession
from eigenveil_server.masked.masked_round import MaskedRound
from eigenveil_server.masked.price import price_of
from eigenveil_server.rounds.offer import Opening, Tell, after, check_wording, said_before
from eigenveil_server.storage.consents import shut_out
from eigenveil_server.storage.repository import Repository

NOBODY: Mapping[str, str] = MappingProxyType({})


def opening(
    session: StudySession, repository: Repository, tell: Tell, able: Mapping[str, str] = NOBODY
) -> Opening | None:
    """What opens the session's pending question; None if it asks nothing more. The first attempt at it is for
    the sites in `able`, by their cards, if they suffice; one that is stored is gone on with.

    Raises:
        InternalError: another question was opened as this round before, or the attempt stored was changed.
    """
    asked, studies = session.pending, repository.studies
    if asked is None:
        return None
    check_wording(studies, asked)
    attempts = studies.attempts(asked.plan_digest, asked.round)
    earlier = said_before(studies, asked, len(attempts))
    federation, denied, due = session.plan.study.federation, shut_out(repository.store.reader), None
    if not attempts:
        out = earlier.declined.keys() | denied
        able = {site: card for site, card in able.items() if site not in out}
        if able and not federation.lacking(able):
            attempts, due = [Attempt.at(asked, 1, able)], price_of(asked, 1, repository)
    opened = MaskedRound(asked, federation, earlier, attempts[-1] if attempts else None, attempts[:-1])
    opened.deny(denied)
    return Opening(
        opened=opened,
        query=query_to_proto(asked),
        at=repository.clock(),
        event=tell(opened, repository.ledger.spent(asked.plan_digest) + (due or NOTHING).micro_rho),
        after=after(session),
        due=due,
    )

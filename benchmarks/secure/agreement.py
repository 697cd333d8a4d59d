"""Cost of key agreement: of one site's keys for 6, 50 and 100 sites, beside the bare curve operations, and of
the first round of masked studies over so many sites, beside their later rounds and a central study's.

`python -m benchmarks.secure.agreement [SITES ...]`. Each site's daemon verifies the keys of all others and
computes the secrets that it shares with them, once a study. All sites of a federation share this machine, so
its first round holds the agreement of all of them, one after the other."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.light_sites import FEDERATION, new_keys
from benchmarks.many_sites import Asked, Measured, measured, names, study_toml
from eigenveil.planning.choose import make_plan, rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.secure_aggregation.masking import Attempt
from eigenveil.secure_aggregation.study_keys import SignedStudyKey
from eigenveil.study.study import Trust
from eigenveil.study.toml import parse_study
from eigenveil_client.connection.identity import CurrentIdentity
from eigenveil_client.site.daemon.round_checks import PeerSecrets
from eigenveil_client.site.roster.peers import PEERS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.study_keys import OwnStudyKey

SITES, RUNS = (6, 50, 100), 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """CPU milliseconds of one site: until the first attempt's secrets, for a later attempt's, and for bare
    X25519 exchanges and Ed25519 verifications, one for each other site."""

    first: float
    later: float
    bare: float


def milliseconds(work: Callable[[], object]) -> float:
    """Return the CPU time of `work`."""
    begin = time.process_time()
    work()
    return 1e3 * (time.process_time() - begin)


def agreement(sites: int, folder: Path) -> Agreement:
    """Measure one site of a study over so many."""
    federation = names(sites)
    plan = make_plan(
        parse_study(study_toml(federation, Asked(trust=Trust.SECURE_AGGREGATION), "keys")),
        federation=FEDERATION,
    )
    holders = {name: new_keys(name) for name in federation}
    studied = {name: OwnStudyKey.make(plan.digest, keys) for name, keys in holders.items()}
    own, *others = federation
    roster = Roster(PEERS, folder)
    roster.import_cards(
        [holders[name].signed for name in others], FEDERATION, holders[own].card, replacing=False
    )
    for name in others:
        roster.confirm(name, holders[name].card.fingerprint, "a person")
    member = cast(CurrentIdentity, SimpleNamespace(identity=SimpleNamespace(name=own), folder=folder))
    first, second = rehearse(plan)[:2]
    members = {name: key.stated.digest for name, key in studied.items()}
    attempts = [Attempt.at(one, 1, members) for one in (first, second)]
    keys = [studied[name].signed for name in others]
    times = [_agreed(member, plan, attempts, keys, studied[own]) for _ in range(RUNS)]
    return Agreement(
        first=min(one for one, _ in times), later=min(two for _, two in times), bare=_bare(len(others))
    )


def _agreed(
    member: CurrentIdentity, plan: Plan, attempts: list[Attempt], keys: list[SignedStudyKey], own: OwnStudyKey
) -> tuple[float, float]:
    """CPU milliseconds of the first attempt's secrets and of the second's, of a new process."""
    agreed = PeerSecrets(member)

    def work(attempt: Attempt) -> None:
        agreed.receive(attempt, keys if agreed.missing(attempt) else ())
        agreed.shared_secrets(plan, attempt, own)

    first, later = (milliseconds(partial(work, attempt)) for attempt in attempts)
    return first, later


def _bare(others: int) -> float:
    """CPU milliseconds of so many exchanges and verifications by the library alone."""
    private, public = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    signing, message = Ed25519PrivateKey.generate(), bytes(400)
    verifying, signature = signing.public_key(), signing.sign(message)

    def work() -> None:
        for _ in range(others):
            private.exchange(public)
            verifying.verify(signature, message)

    return min(milliseconds(work) for _ in range(RUNS))


def said(one: Measured) -> str:
    """One line of a federation's rounds."""
    return (
        f"{one.sites:4} sites: first round {one.first:7.0f} ms, later ones {one.median:6.0f} ms (median of "
        f"{len(one.rounds)}); CPU of the coordinator a round {one.coordinator_cpu:.0f} ms"
    )


def main() -> None:
    """Print a line for each number of sites: of one site's agreement, then of rounds, masked and central."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sites", nargs="*", type=int, default=SITES)
    wanted = parser.parse_args()
    for sites in wanted.sites:
        with tempfile.TemporaryDirectory() as folder:
            one = agreement(sites, Path(folder))
        print(
            f"{sites:4} sites: keys of one site {one.first:.1f} ms of CPU ({one.first / one.bare:.1f} times "
            f"the curve's {one.bare:.1f}), for a later attempt {one.later:.1f} ms",
            flush=True,
        )
    for trust in (Trust.CENTRAL, Trust.SECURE_AGGREGATION):
        for sites in wanted.sites:
            print(f"{trust.value}: {said(measured(sites, Asked(trust=trust)))}", flush=True)


if __name__ == "__main__":
    main()

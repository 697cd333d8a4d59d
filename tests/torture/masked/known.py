"""Sites whose people know each other, and whose shares of noise are known: so sums can be told exactly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.mechanisms import apply_mechanism
from eigenveil.noise.source import NoiseSpec, OsNoise
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.rounds import Release
from eigenveil.session import Session
from eigenveil.site.record_view import to_grid
from eigenveil.site.site import Site
from eigenveil_client.site.roster.peers import PEERS, SiteKeys
from eigenveil_client.site.roster.roster import Roster

SHARE = 1009  # in every number of every masked answer: a sum tells how many answers are in it


class KnownShare:
    def draw(self, spec: NoiseSpec) -> IntArray:
        return np.full(spec.length, SHARE, dtype=np.int64)


def exchange_key_cards(folders: Mapping[str, Path]) -> None:
    """The people of all sites have compared their cards; by name, the folders of their identities."""
    keys = {name: SiteKeys.make(folder) for name, folder in folders.items()}
    for name, folder in folders.items():
        others = [one for other, one in keys.items() if other != name]
        roster = Roster(PEERS, folder)
        roster.import_cards(
            [one.signed for one in others], keys[name].card.federation, keys[name].card, replacing=False
        )
        for one in others:
            roster.confirm(one.card.site, one.card.fingerprint, "Eva")


def wrong_round(plan: Plan, document: Mapping[str, Any], records: Mapping[str, FloatArray]) -> str:
    """The first round whose release is not, number by number, the exact answers of the sites that it names
    and a share of noise for each; empty if there is none. `records` are the sites' by name."""
    session, sites = Session(plan), {name: Site(to_grid(rows, plan.study)) for name, rows in records.items()}
    for result in document["rounds"]:
        round_query, present = session.pending, tuple(result["present"])
        if round_query is None:
            return f"round {result['round']} is one too many"
        total = np.sum([sites[name].answer(round_query.query) for name in present], axis=0, dtype=np.int64)
        outcome = apply_mechanism(
            round_query.priced, frozen(total + SHARE * len(present)), plan.study, OsNoise(), present
        )
        release = Release.of(round_query, outcome.values, outcome.sigma, present)
        if release.digest != result["release"]:
            return f"round {result['round']} is not the sum of {', '.join(present)}"
        session.feed(release)
    return ""

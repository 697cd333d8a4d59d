"""Sites whose people know each other, and whose shares of noise are known: so sums can be told exactly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from eigenveil.noise.source import NoiseSpec
from eigenveil.numerics.encoding import IntArray
from eigenveil_client.site.peers.keys import OwnKeys
from eigenveil_client.site.peers.roster import Roster

SHARE = 1009  # in every number of every masked answer: a sum tells how many answers are in it


class KnownShare:
    """Stands for the noise of a site."""

    def draw(self, spec: NoiseSpec) -> IntArray:
        """The same for every number."""
        return np.full(spec.length, SHARE, dtype=np.int64)


def introduce(folders: Mapping[str, Path]) -> None:
    """The people of all sites have compared their cards; by name, the folders of their identities."""
    keys = {name: OwnKeys.make(folder) for name, folder in folders.items()}
    for name, folder in folders.items():
        others = [one for other, one in keys.items() if other != name]
        roster = Roster(folder)
        roster.take([one.signed for one in others], keys[name].card, replacing=False)
        for one in others:
            roster.confirm(one.card.site, one.card.fingerprint, "Eva")

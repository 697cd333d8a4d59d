"""What a released fingerprint stands for: no noise, because it says nothing new."""

from __future__ import annotations

from eigenveil.mechanisms.outcome import Outcome
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import Preimage
from eigenveil.study.study import Study


def release(query: Preimage, total: IntArray, study: Study, present: tuple[str, ...]) -> Outcome:
    """The values with that fingerprint, after a 1; or zeros if one of the holders is absent.

    Shape: total (sites, 1 + size) flat, every row zeros or checked against the fingerprint as it came in;
    values (1 + size,).
    Sensitivity: none. The fingerprint was released and determines its values (SHA-256 has no known
    collision), and a holder has them; who is present is public. Without the check, a round that only some
    holders answer would tell whether they have a subsample that voted for it.
    Privacy: [P18].
    """
    rows = total.reshape(-1, query.length)
    known = rows[rows[:, 0] == 1]
    holders = {study.federation.sites[place] for place in query.holders}
    complete = holders <= set(present)
    return Outcome(values=frozen(known[0] if complete and len(known) else [0] * query.length), sigma=0.0)

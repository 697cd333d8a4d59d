"""What each kind of question is called where people read; JSON, digests and the wire say the kind itself."""

from __future__ import annotations

WORDS = {
    "count": "number of records",
    "row-norms": "distances from the centre, counted",
    "clipped-sum": "sums of the columns",
    "energy": "sum of squared distances",
    "gram": "sums and products of the columns",
    "cross-norms": "weights of the records, counted",
    "cross-covariance": "products of columns with leading directions",
    "column-histograms": "values of each column, counted",
    "column-moments": "sums and squares of each column",
    "gradient": "sums that improve the directions",
    "gradient-norms": "sizes of the improvements, counted",
    "votes": "unevenness in small groups, counted",
    "coordinates": "places of small groups, counted",
    "boxed": "sums over small groups",
    "block-ranks": "dimensions of small groups, counted",
    "spectrum": "products of the columns: only noised variances are released",
    "eigenvectors": "products of the columns: only random directions are released",
    "subspace": "products of the columns: only noised directions are released",
    "radius-search": "distances from the centre: only one radius is released",
    "slot": "one record's improvement, whose it is unknown",
    "span-votes": "what small groups share: one fingerprint at most is released",
    "cell-votes": "directions of small groups: one fingerprint at most is released",
    "rank-votes": "dimensions of small groups: one fingerprint at most is released",
    "span-gap": "lead of the most common fingerprint",
    "preimage": "what the released fingerprint stands for",
}


# Whose answers are released as what is here, and noise besides.
NOISED = frozenset(WORDS) - {
    "spectrum", "eigenvectors", "subspace", "radius-search", "slot", "span-votes", "cell-votes", "rank-votes",
    "preimage",
}  # fmt: skip


def called(kind: str) -> str:
    """The words for a kind; the kind itself if another version of ours knows it and this one does not."""
    return WORDS.get(kind, kind)


def sent_as(kind: str, *, masked: bool) -> str:
    """That, and who adds the noise."""
    if kind not in NOISED:
        return called(kind)
    return f"{called(kind)} ({'masked, with noise inside' if masked else 'the coordinator adds noise'})"

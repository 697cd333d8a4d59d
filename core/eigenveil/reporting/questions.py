"""What each kind of question is called where people read; JSON, digests and the wire say the kind itself."""

from __future__ import annotations

ADDS, INSIDE = "(the coordinator adds noise)", "(masked, with noise inside)"
WORDS = {
    "count": "number of records (the coordinator adds noise)",
    "row-norms": "distances from the centre, counted (the coordinator adds noise)",
    "clipped-sum": "sums of the columns (the coordinator adds noise)",
    "energy": "sum of squared distances (the coordinator adds noise)",
    "gram": "sums and products of the columns (the coordinator adds noise)",
    "cross-norms": "weights of the records, counted (the coordinator adds noise)",
    "cross-covariance": "products of columns with leading directions (the coordinator adds noise)",
    "column-histograms": "values of each column, counted (the coordinator adds noise)",
    "column-moments": "sums and squares of each column (the coordinator adds noise)",
    "gradient": "sums that improve the directions (the coordinator adds noise)",
    "gradient-norms": "sizes of the improvements, counted (the coordinator adds noise)",
    "votes": "unevenness in small groups, counted (the coordinator adds noise)",
    "coordinates": "places of small groups, counted (the coordinator adds noise)",
    "boxed": "sums over small groups (the coordinator adds noise)",
    "block-ranks": "dimensions of small groups, counted (the coordinator adds noise)",
    "spectrum": "products of the columns: only noised variances are released",
    "eigenvectors": "products of the columns: only random directions are released",
    "subspace": "products of the columns: only noised directions are released",
    "radius-search": "distances from the centre: only one radius is released",
    "slot": "one record's improvement, whose it is unknown",
    "span-votes": "what small groups share: one fingerprint at most is released",
    "cell-votes": "directions of small groups: one fingerprint at most is released",
    "rank-votes": "dimensions of small groups: one fingerprint at most is released",
    "span-gap": "lead of the most common fingerprint (the coordinator adds noise)",
    "preimage": "what the released fingerprint stands for",
}


def called(kind: str, *, masked: bool = False) -> str:
    """The words for a kind; the kind itself if another version of ours knows it and this one does not."""
    said = WORDS.get(kind, kind)
    return said.replace(ADDS, INSIDE) if masked else said

"""What each kind of question is called where people read; JSON, digests and the wire say the kind itself."""

from __future__ import annotations

WORDS = {
    "count": "number of records, with noise",
    "row-norms": "distances from the centre, counted, with noise",
    "clipped-sum": "sums of the columns, with noise",
    "energy": "sum of squared distances, with noise",
    "gram": "sums and products of the columns, with noise",
    "cross-norms": "weights of the records, counted, with noise",
    "cross-covariance": "products of columns with leading directions, with noise",
    "column-histograms": "values of each column, counted, with noise",
    "column-moments": "sums and squares of each column, with noise",
    "gradient": "sums that improve the directions, with noise",
    "gradient-norms": "sizes of the improvements, counted, with noise",
    "votes": "unevenness in small groups, counted, with noise",
    "coordinates": "places of small groups, counted, with noise",
    "boxed": "sums over small groups, with noise",
    "block-ranks": "dimensions of small groups, counted, with noise",
    "spectrum": "products of the columns: only noised variances are released",
    "eigenvectors": "products of the columns: only random directions are released",
    "subspace": "products of the columns: only noised directions are released",
    "radius-search": "distances from the centre: only one radius is released",
    "slot": "one record's improvement, whose it is unknown",
    "span-votes": "what small groups share: one fingerprint at most is released",
    "cell-votes": "directions of small groups: one fingerprint at most is released",
    "rank-votes": "dimensions of small groups: one fingerprint at most is released",
    "span-gap": "lead of the most common fingerprint, with noise",
    "preimage": "what the released fingerprint stands for",
}


def called(kind: str) -> str:
    """The words for a kind; the kind itself if another version of ours knows it and this one does not."""
    return WORDS.get(kind, kind)

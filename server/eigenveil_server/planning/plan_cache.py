"""Plans that were just explained, so that a study which is then signed and submitted is not planned twice.

All of them were made of one directory, the latest. It is compared and not digested: the statements of sites
are the same objects from call to call, so that equality takes microseconds where a digest of 50 sites with
2,000 columns each takes most of a second, for whoever submits anything. Plans of an older directory are of no
use to anybody, and nothing of it is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from eigenveil.numerics.encoding import digest_of

MOST_PLANS = 16
MOST_BYTES = 8 * 2**20  # of all plans together; a study of 4,096 columns has about half a MiB


class PlanCache:
    """The latest plans, each under all the words that it was made of: other words never find it."""

    def __init__(self) -> None:
        self._plans: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._directory: object = None  # of all of them

    def put(self, words: Mapping[str, Any], planned: Mapping[str, Any]) -> None:
        """Store what `planner.planned` said of these words; the oldest give way."""
        if words["directory"] != self._directory:
            self._plans.clear()
        self._directory = words["directory"]
        key = _key(words)
        self._plans.pop(key, None)
        self._plans[key] = {name: planned[name] for name in ("plan", "rounds", "warnings")}
        while len(self._plans) > MOST_PLANS or self._bytes > MOST_BYTES:
            self._plans.popitem(last=False)

    def take(self, words: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What was said of these words, once; None if nothing is stored of them."""
        return self._plans.pop(_key(words), None) if words["directory"] == self._directory else None

    @property
    def _bytes(self) -> int:
        return sum(len(one["plan"]) for one in self._plans.values())


def _key(words: Mapping[str, Any]) -> str:
    """The digest of all words but the directory."""
    said = (f"{name} = {words[name]}".encode() for name in sorted(words.keys() - {"directory"}))
    return digest_of("plan-words", *said)

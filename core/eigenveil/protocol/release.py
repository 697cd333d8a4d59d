"""A release: one noised, charged answer, all that the public side ever sees of a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eigenveil.accounting.zcdp import Cost
from eigenveil.numerics.encoding import IntArray, digest, frozen
from eigenveil.protocol.query import RoundQuery


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """One noised, charged answer: all that the public side ever sees of a round.

    Shape: values (released(asked.query),). `micro_rho` and `atto_delta` are what was charged; `sigma` is
    the largest noise standard deviation, in the integer units of the values (0 where there is none to state);
    `present` are the sites whose records are in the sum.
    """

    round: int
    query: str
    values: IntArray
    sigma: float
    micro_rho: int
    atto_delta: int
    present: tuple[str, ...]
    _digest: str = field(init=False, repr=False)  # filled in when it is first asked for: no rehearsal does

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values))

    @classmethod
    def of(cls, asked: RoundQuery, values: IntArray, sigma: float, present: tuple[str, ...]) -> Release:
        """The answer to `asked`, at what it costs."""
        return cls(
            round=asked.round,
            query=asked.digest,
            values=values,
            sigma=sigma,
            micro_rho=asked.cost.micro_rho,
            atto_delta=asked.cost.atto_delta,
            present=present,
        )

    @property
    def cost(self) -> Cost:
        return Cost(micro_rho=self.micro_rho, atto_delta=self.atto_delta)

    @property
    def digest(self) -> str:
        """SHA-256 over every field."""
        if not hasattr(self, "_digest"):
            object.__setattr__(self, "_digest", digest("release", self._header(), (self.values,)))
        return self._digest

    def _header(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "query": self.query,
            "sigma": self.sigma,
            "micro_rho": self.micro_rho,
            "atto_delta": str(self.atto_delta),
            "present": list(self.present),
        }

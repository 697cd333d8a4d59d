"""What is left of a federation's budget, as an epsilon and as studies."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.accounting.budget import Conversion, studies_left
from eigenveil.accounting.zcdp import MICRO, Cost
from eigenveil.errors import Code, PeerError
from eigenveil.reporting.notebook import card, lines
from eigenveil_proto.v1 import eigenveil_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationBudget:
    """What all studies of a federation may spend together (`total`), what of it is neither spent nor set
    aside (`left`), and the `delta` at which both are told as an epsilon. `gaussian`: both add up in mu.
    `like` is the name and the price of the latest study, if there is one."""

    total: Cost
    left: Cost
    delta: float
    gaussian: bool
    like: tuple[str, Cost] | None = None

    @property
    def epsilon(self) -> float:
        """All of it."""
        return self._told.epsilon(self.total.micro_rho)

    @property
    def epsilon_left(self) -> float:
        """What one study could still spend, if that was allowed to one."""
        return self._told.epsilon(self.left.micro_rho)

    @property
    def _told(self) -> Conversion:
        return Conversion(delta=self.delta, exact=self.gaussian)

    def studies_left(self, price: Cost) -> int | None:
        """How many more studies of one price fit; None if it costs nothing."""
        return studies_left(self.left, price)

    def rows(self) -> list[tuple[str, str]]:
        """What is shown of it."""
        left, whole = self.left.micro_rho, self.total.micro_rho
        told = [
            ("left", self._told.left(left, whole)),
            ("of", f"{self._told.spent(whole)}, except with probability {self._told.but_for(self.total)}"),
        ]
        if self.like is None:
            return told
        name, price = self.like
        return [*told, (f"studies like {name} left", str(self.studies_left(price)))]

    def __repr__(self) -> str:
        return lines("budget of the federation", self.rows())

    def _repr_html_(self) -> str:
        return card("Budget of the federation", self.rows())


def budget_from(listed: pb.ListStudiesResponse) -> FederationBudget:
    """What a coordinator tells with its list of studies.

    Raises:
        PeerError: code `protocol`, it tells none, or one that cannot be.
    """
    told = listed.budget
    left = max(0, told.micro_rho - told.committed_micro_rho)  # a budget may have been lowered
    own_left = max(0, told.atto_delta - told.committed_atto_delta)
    if not (listed.HasField("budget") and 0 < told.delta < 1 and told.micro_rho < MICRO**2):
        raise PeerError(Code.PROTOCOL, "the coordinator tells no budget: is it of an older version?")
    latest = listed.studies[-1] if listed.studies else None
    return FederationBudget(
        total=Cost(micro_rho=told.micro_rho, atto_delta=told.atto_delta),
        left=Cost(micro_rho=left, atto_delta=own_left),
        delta=told.delta,
        gaussian=told.gaussian,
        like=None if latest is None else (latest.name, _price(latest)),
    )


def _price(row: pb.StudyRow) -> Cost:
    return Cost(micro_rho=row.micro_rho, atto_delta=row.atto_delta)

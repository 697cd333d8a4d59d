"""What the attempts at masked rounds cost, and whether a document's are those that its plan allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, RequestError, spoken
from eigenveil.protocol.budget import attempt_cost
from eigenveil.study.study import MAX_ATTEMPTS, Trust
from eigenveil.study.toml import study_from_dict


def attempts_of(row: Mapping[str, Any]) -> int:
    """How many attempts at a round were charged; 0 where it was not masked.

    Raises:
        RequestError: code `bad-release`, more than any plan allows.
    """
    tried = int(row.get("attempts", 0))
    if tried > MAX_ATTEMPTS:
        raise _bad(f"{spoken(row['round'])} is said to have been tried {tried} times")
    return tried


def spent(rounds: Sequence[Mapping[str, Any]], site: str | None = None) -> int:
    """Micro-rho that the coordinator was charged for the rounds of a document, with every attempt at them; or
    that `site` was at most: it may have been in any attempt but the last of a round that it is not in.

    Batches after the first of their pass cost nothing, as the document says: it is their pass that pays.
    """
    total = first = NOTHING
    paid = 0
    for row in rounds:
        tried = max(1, attempts_of(row)) - (site is not None and site not in row["present"])
        price = Cost(micro_rho=row["micro_rho"])
        if price != NOTHING:
            first, paid = price, 0
        for time in range(1, tried + 1):
            total += attempt_cost(price, time, paid, first)
        paid = max(paid, tried)
    return total.micro_rho


def check_attempts(document: Mapping[str, Any]) -> None:
    """Insist that a masked study's rounds were tried no more often than its plan says, with no fewer sites,
    and for no more than it may cost.

    Raises:
        RequestError: code `bad-release`, they were not.
    """
    plan, rounds = document["plan"], document["rounds"]
    if plan["study"]["privacy"]["trust"] != Trust.SECURE_AGGREGATION.value:
        return
    study = study_from_dict(plan["study"])
    for row in rounds:
        where, tried = spoken(row["round"]), attempts_of(row)
        if not 1 <= tried <= study.attempts:
            raise _bad(
                f"{where} is said to have been tried {tried} times, and the plan allows {study.attempts}"
            )
        if not set(row["present"]) <= set(study.federation.sites):
            raise _bad(f"in {where} are sites that were not invited")
        if len(set(row["present"])) < len(row["present"]):
            raise _bad(f"in {where} a site is named twice")
        try:
            study.federation.check_present(row["present"])
        except RequestError as problem:
            raise _bad(f"{where}: {problem}") from problem
    most = study.attempts * int(plan["micro_rho"])
    if spent(rounds) > most:
        raise _bad(f"its rounds cost {spent(rounds)} micro-rho, and the plan allows {most}")


def _bad(why: str) -> RequestError:
    return RequestError(Code.BAD_RELEASE, f"this release does not keep to its own plan: {why}")

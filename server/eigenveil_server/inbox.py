"""One open round in memory: who answered, who declined, who is awaited. Values live only here.

Everything happens on the event loop, so each method is one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from eigenveil.errors import Code, RequestError
from eigenveil.ints import IntArray
from eigenveil.query import Query
from eigenveil.study import Federation
from eigenveil_server.studies import Answers

LATE = "no answer by the deadline"


class DifferentAnswer(RequestError):
    """A site's second answer is not its first: refused, audited, and told to the operator."""

    def __init__(self, site: str, round: int) -> None:
        super().__init__(
            Code.CONFLICT,
            f"site {site} answered round {round} differently before; nothing was added, "
            "and the operator was told",
        )


class Inbox:
    """What sites sent for `query`. `earlier` is what they sent before this process started.

    A contribution counts once it is `confirmed`, that is, once its HMAC is durable. `ready` is set
    when nobody is awaited any more, or when the round cannot succeed whoever still answers.
    """

    def __init__(self, query: Query, federation: Federation, earlier: Answers) -> None:
        self.query = query
        self.ready = asyncio.Event()
        self._federation = federation
        self._macs = dict(earlier.macs)
        self._declined = dict(earlier.declined)
        self._values: dict[str, IntArray] = {}
        self._confirmed: set[str] = set()
        self._closed = False
        self._look()

    def wants(self, site: str) -> bool:
        """Whether `site` is invited and has neither answered nor declined."""
        awaited = site not in self._values and site not in self._declined
        return not self._closed and awaited and site in self._federation.sites

    def holds(self, site: str) -> bool:
        """Whether the contribution of `site` counts already."""
        return site in self._confirmed

    def put(self, site: str, mac: bytes, values: IntArray) -> bool:
        """Take a validated contribution; whether the same one was here before.

        Raises:
            DifferentAnswer: it answered differently before.
            RequestError: code `conflict`: the round is closed, or the site declined it.
        """
        if self._macs.get(site, mac) != mac:
            raise DifferentAnswer(site, self.query.round)
        if site in self._confirmed:
            return True
        if self._closed:
            raise closed(site, self.query.round)
        if site in self._declined:
            raise RequestError(
                Code.CONFLICT, f"site {site} declined round {self.query.round}; that cannot be taken back"
            )
        repeated = site in self._macs
        self._macs[site] = mac
        self._values[site] = values
        return repeated

    def confirm(self, site: str) -> None:
        """The contribution of `site` is durably known.

        Raises:
            RequestError: code `conflict`: the round was closed meanwhile.
        """
        if self._closed:
            raise closed(site, self.query.round)
        self._confirmed.add(site)
        self._look()

    def decline(self, site: str, reason: str) -> bool:
        """Note that `site` will not answer; False if it had said so before.

        Raises:
            RequestError: code `conflict`: it answered already, or the round is closed.
        """
        if site in self._declined:
            return False
        if self._closed:
            raise closed(site, self.query.round)
        if site in self._values or site in self._confirmed:
            raise RequestError(Code.CONFLICT, f"site {site} answered round {self.query.round} already")
        self._declined[site] = reason
        self._look()
        return True

    def close(self) -> Mapping[str, IntArray]:
        """Freeze the set of sites; the values of those whose records are in."""
        self._closed = True
        return {site: self._values[site] for site in sorted(self._confirmed)}

    def forget(self) -> None:
        """Drop the values: the sum is sealed, and nobody needs them any more."""
        self._values.clear()

    def absent(self) -> dict[str, str]:
        """Invited sites whose records are not in, and why."""
        return {
            site: f"declined: {self._declined[site]}" if site in self._declined else LATE
            for site in self._federation.sites
            if site not in self._confirmed
        }

    def statuses(self) -> dict[str, str]:
        """What to tell analysts of every invited site."""
        return {site: self._status(site) for site in self._federation.sites}

    def _status(self, site: str) -> str:
        if site in self._declined:
            return f"declined:{self._declined[site]}"
        if site in self._confirmed or (site in self._values and not self._closed):
            return "answered"
        return "absent" if self._closed else "waiting"

    def _look(self) -> None:
        federation = self._federation
        left = [site for site in federation.sites if site not in self._declined]
        hopeless = len(left) < federation.least or any(s in self._declined for s in federation.required)
        if hopeless or all(site in self._confirmed for site in left):
            self.ready.set()


def closed(site: str, round: int) -> RequestError:
    """An answer came too late."""
    return RequestError(Code.CONFLICT, f"round {round} was closed before site {site} answered; ask for work")

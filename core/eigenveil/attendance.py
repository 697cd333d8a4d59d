"""Who answers which round of a simulated study, and why the others do not: drop-outs and small cohorts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eigenveil.errors import RequestError
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES
from eigenveil.reporting.document import RoundRecord
from eigenveil.site.site import Site
from eigenveil.study.study import Federation


class Attendance:
    """The sites of a federation that hold enough records, less those that miss a round.

    `drop_outs` maps a round to the sites that do not answer it; `rounds` keeps what is published of each.
    """

    def __init__(
        self, federation: Federation, sites: Mapping[str, Site], drop_outs: Mapping[int, Sequence[str]]
    ) -> None:
        few = federation.minimum_cohort
        self.rounds: list[RoundRecord] = []
        self._federation, self._drop_outs = federation, drop_outs
        self._small = [name for name, site in sites.items() if len(site) < few]
        self.sites = {name: site for name, site in sites.items() if name not in self._small}
        self._never = {name: "no records" for name in federation.sites if name not in sites}
        # As in a federation: the reason is the site's own affair.
        self._never |= dict.fromkeys(self._small, "declined")

    def __call__(self, asked: RoundQuery, lost: Sequence[str] = (), attempts: int = 0) -> tuple[str, ...]:
        """The sites that answer this round, if `lost` were there only before the last of its `attempts`.

        Raises:
            RequestError: code `study-failed`: too few do.
        """
        gone = (*self._drop_outs.get(asked.round, ()), *lost)
        absent = dict.fromkeys(gone, "dropped out") | self._never
        self._check(absent, max(attempts - 1, 0))
        self.rounds[asked.round :] = [
            RoundRecord(kind=NAMES[type(asked.query)], absent=absent, attempts=attempts)
        ]
        return tuple(name for name in self.sites if name not in absent)

    def _check(self, absent: Mapping[str, str], tried: int) -> None:
        """Whoever imagines the sites is told why a round cannot go on, but not how small a site is."""
        federation = self._federation
        try:
            federation.check_present([name for name in federation.sites if name not in absent], tried)
        except RequestError as problem:
            few = f"fewer records than minimum_cohort = {federation.minimum_cohort}"
            why = dict.fromkeys(self._small, few)
            reasons = "; ".join(f"{name}: {why.get(name, reason)}" for name, reason in absent.items())
            raise RequestError(problem.code, f"{problem} ({reasons})") from problem

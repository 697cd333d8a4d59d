"""Imagined sites on a Dask cluster: their records lie with its workers, a share of the sites with each, and a
worker adds up what its sites contribute. The release is the one that a single process gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from eigenveil.contributing import Hold, Mask, Together, contributed, in_order
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.site.site import Site
from eigenveil_client.connection.cluster import Cluster, ClusterAddress

Share = dict[str, Site]


@contextmanager
def on_cluster(address: ClusterAddress) -> Iterator[Hold]:
    """What holds the sites of `simulate` on a cluster, as long as this is open.

    Raises:
        RequestError: code `bad-config`, a library or a file is missing.
        PeerError: code `unreachable`, also from the simulation: a worker or the scheduler is gone.
    """
    cluster = Cluster(address)
    try:
        yield lambda sites, plan: _held(cluster, sites, plan)
    finally:
        cluster.close()


def _held(cluster: Cluster, sites: Mapping[str, Site], plan: Plan) -> Together:
    names = sorted(sites)
    each = -(-len(names) // max(1, cluster.workers().threads))
    shares = [names[first : first + each] for first in range(0, len(names), each)]
    held = [cluster.keep({name: sites[name] for name in share}) for share in shares]
    most = plan.study.max_records

    def together(asked: RoundQuery, present: Sequence[str], mask: Mask | None = None) -> IntArray:
        asked.digest  # noqa: B018 - computed here once, and sent along
        there = set(present)
        sums = [
            cluster.submit(_answer, future, most, asked, [name for name in share if name in there], mask)
            for future, share in zip(held, shares, strict=True)
        ]
        return in_order(asked, cluster.results(sums, sums, lambda done, of: None))

    return together


def _answer(
    share: Share, most: int, asked: RoundQuery, present: Sequence[str], mask: Mask | None
) -> IntArray:
    with one_thread():  # the worker's tasks are the threads
        return contributed(share, most, asked, present, mask)

"""The Enrolment service, on its own listener without client certificates [R2]."""

from __future__ import annotations

import asyncio

from eigenveil.errors import PeerError
from eigenveil.protocol.wire import lists_to_proto
from eigenveil_common import log
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import EnrolmentServicer
from eigenveil_server.config import Config
from eigenveil_server.front.admission import RATE
from eigenveil_server.front.allowance import Allowance
from eigenveil_server.pki.keys import Keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.interceptor import ARRIVAL, Context

GUESSES = {"burst": 20.0, "rate": 5.0}  # wrong tokens of everybody, at once and a second
FINE, LARGE_FINE = RATE, 5 * RATE  # of its address: a second, or five while all of those are used up


class Enrolment(EnrolmentServicer):
    """A one-time token and a certificate request become a certificate."""

    def __init__(self, config: Config, keys: Keys, registry: Registry) -> None:
        self._config = config
        self._keys = keys
        self._registry = registry
        self._guesses = Allowance(**GUESSES)

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.EnrolResponse:
        """The certificate the token is good for; the same request again gets the same one."""
        authority, days = self._keys.authority, self._config.days
        enrol = self._registry.enrol
        try:
            issued = await asyncio.to_thread(enrol, request.token, request.csr_der, authority, days)
        except PeerError:
            # A right token is never refused for others' wrong ones: these make their own address wait.
            guest = ARRIVAL.get().guest
            guest.allowance.fine(FINE if self._guesses.spend(1) else LARGE_FINE)
            raise
        log.event("enrolled", peer=issued.identity.uri, print=issued.key)
        return pb.EnrolResponse(
            certificate_pem=issued.pem,
            federation=self._config.federation,
            authorities=lists_to_proto(self._keys.authorities.since(request.authorities_version)),
        )

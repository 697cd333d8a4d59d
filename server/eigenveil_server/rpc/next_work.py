"""What a site should do next: the answer to its long poll, whichever call brings that [R5] [R27]."""

from __future__ import annotations

from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.recovery.checkpoints import Checkpoints
from eigenveil_server.rpc.directory import SiteDirectory
from eigenveil_server.rpc.interceptor import CALLER, still_admitted
from eigenveil_server.studies.engine import Engine
from eigenveil_server.studies.poll import Poll
from eigenveil_server.studies.runtime import Runtime


class NextWork:
    """Waits for work of the calling site, for `seconds` at most."""

    def __init__(
        self,
        runtime: Runtime,
        engine: Engine,
        checkpoints: Checkpoints,
        directory: SiteDirectory,
        seconds: float,
    ) -> None:
        self._metrics = runtime.metrics
        self._engine = engine
        self._checkpoints = checkpoints
        self._directory = directory
        self._seconds = seconds

    async def wait(self, poll: Poll, checkpoint_digest: bytes) -> pb.NextWorkResponse:
        """Take note of what the site says, then answer once there is work.

        Raises:
            PeerError: code `identity`: it was shut out meanwhile.
        """
        site, checkpoints = CALLER.get().name, self._checkpoints
        self._directory.heard(site)
        await checkpoints.look()
        if checkpoints.parted_from(checkpoint_digest):
            return pb.NextWorkResponse(checkpoint=checkpoints.other_than(checkpoint_digest), parted=True)
        with self._metrics.polling(site):
            await self._engine.hear(site, poll)
            found = await self._engine.next_work(site, poll, self._seconds)
        await still_admitted()
        await checkpoints.look()
        checkpoint = checkpoints.other_than(checkpoint_digest)
        if checkpoint is not None:
            found.checkpoint.CopyFrom(checkpoint)
        return found

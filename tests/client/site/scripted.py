"""A coordinator that does what a test scripts, and keeps what it is sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc

from eigenveil_common.rpc import CODE_KEY, VERSION_MAX
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from tests.client.site.stated import keys_sent, rehearsal, released, sealed

FEDERATION = "test-federation"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Analysts(rpc.CoordinatorServicer):
    async def _never(self, request: object, context: Context) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "only for analysts")

    SubmitStudy = ExplainStudy = ListStudies = ListSites = Renew = _never
    CancelStudy = GetRelease = _never

    def WatchStudy(self, request: object, context: Context) -> AsyncIterator[pb.StudyEvent]:
        raise NotImplementedError("only for analysts")


@dataclass
class Coordinator(Analysts):
    """Hands out scripted work in order and keeps what it is sent. A site that loads records gets none, as of
    an honest coordinator: the end of the load cancels the request, and what was on its way would be lost.

    `lose` names calls whose answers are lost; `forget` calls before which uploads are forgotten."""

    work: list[pb.NextWorkResponse] = field(default_factory=list)
    requests: list[pb.NextWorkRequest] = field(default_factory=list)
    contributions: list[pb.ContributeRequest] = field(default_factory=list)
    readies: list[pb.ReadyRequest] = field(default_factory=list)
    declines: list[pb.DeclineRequest] = field(default_factory=list)
    uploads: dict[bytes, dict[int, bytes]] = field(default_factory=dict)
    opened: list[pb.OpenUploadRequest] = field(default_factory=list)
    lose: list[str] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    hellos: int = 0
    version: int = VERSION_MAX
    clock_lag_ms: int = 0

    async def _maybe_lose(self, name: str, context: Context) -> None:
        if name in self.lose:
            self.lose.remove(name)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the network ate the answer")

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:
        self.hellos += 1
        limits = pb.Limits(message_bytes=2**22, inline_bytes=2**20, chunk_bytes=2**20, long_poll_ms=30_000)
        return pb.HelloResponse(
            version=self.version, federation=FEDERATION,
            unix_time_ms=int(time.time() * 1000) - self.clock_lag_ms, limits=limits,
        )  # fmt: skip

    async def GetDictionary(
        self, request: pb.GetDictionaryRequest, context: Context
    ) -> pb.GetDictionaryResponse:
        return pb.GetDictionaryResponse()

    async def NextWork(self, request: pb.NextWorkRequest, context: Context) -> pb.NextWorkResponse:
        self.requests.append(request)
        while request.loading or not self.work:
            await asyncio.sleep(0.005)
        answer = self.work.pop(0)
        await self._maybe_lose("NextWork", context)
        return answer

    async def GetRound(self, request: pb.GetRoundRequest, context: Context) -> pb.GetRoundResponse:
        plan = request.plan_digest.hex()
        message = sealed(rehearsal(plan)[request.round], released(plan))
        return pb.GetRoundResponse(release=message, total_bytes=len(message.values))

    async def Contribute(self, request: pb.ContributeRequest, context: Context) -> pb.ContributeResponse:
        self.contributions.append(request)
        await self._maybe_lose("Contribute", context)
        found = await self.NextWork(request.next, context) if request.HasField("next") else None
        return pb.ContributeResponse(next=found)

    async def Ready(self, request: pb.ReadyRequest, context: Context) -> pb.ReadyResponse:
        self.readies.append(request)
        await self._maybe_lose("Ready", context)
        found = await self.NextWork(request.next, context) if request.HasField("next") else None
        return pb.ReadyResponse(next=found)

    async def GetStudyKeys(
        self, request: pb.GetStudyKeysRequest, context: Context
    ) -> pb.GetStudyKeysResponse:
        await self._maybe_lose("GetStudyKeys", context)
        return pb.GetStudyKeysResponse(keys=keys_sent(one.hex() for one in request.digests))

    async def Decline(self, request: pb.DeclineRequest, context: Context) -> pb.DeclineResponse:
        self.declines.append(request)
        return pb.DeclineResponse()

    async def OpenUpload(self, request: pb.OpenUploadRequest, context: Context) -> pb.OpenUploadResponse:
        self.opened.append(request)
        key = next(iter(self.uploads), b"") or bytes([len(self.opened)]) * 16
        return pb.OpenUploadResponse(upload=key, received_chunks=sorted(self.uploads.setdefault(key, {})))

    async def PutChunk(self, request: pb.PutChunkRequest, context: Context) -> pb.PutChunkResponse:
        if "PutChunk" in self.forget:
            self.forget.remove("PutChunk")
            self.uploads.clear()
        if request.upload not in self.uploads:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, "no such upload", trailing_metadata=((CODE_KEY, "not-found"),)
            )
        self.uploads[request.upload][request.index] = request.data
        await self._maybe_lose("PutChunk", context)
        return pb.PutChunkResponse()

    async def Commit(self, request: pb.CommitRequest, context: Context) -> pb.ContributeResponse:
        stored, dispatch = self.uploads[request.upload], self.opened[-1]
        values = b"".join(stored[index] for index in sorted(stored))
        assert len(values) == dispatch.total_bytes
        self.contributions.append(
            pb.ContributeRequest(
                plan_digest=dispatch.plan_digest,
                round=dispatch.round,
                query_digest=dispatch.query_digest,
                values=values,
                contribution_digest=dispatch.contribution_digest,
                attempt_digest=dispatch.attempt_digest,
            )
        )
        await self._maybe_lose("Commit", context)
        return pb.ContributeResponse()

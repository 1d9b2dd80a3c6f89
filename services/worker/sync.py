"""The worker as a client of control: changes of users, and its own lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from inferscale_core.errors import InferScaleError, Unavailable, WorkerIdTaken
from inferscale_core.ids import TenantId, UserId
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2, sync_pb2_grpc
from inferscale_core.rpc.status import error_from
from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)

LIST_LIMIT_S = 20.0
JOIN_LIMIT_S = 5.0
RENEWALS_PER_LEASE = 3
RETRY_S = 0.5
"""Between two attempts to join while control does not answer."""


class ControlLink:
    """Calls of SyncService. Errors are the domain's, as control raised them."""

    def __init__(self, channel: grpc.aio.Channel, *, with_disk_keys: bool = False) -> None:
        """with_disk_keys: this worker has a disk tier, so changes come with the user's key."""
        self._stub: Any = sync_pb2_grpc.SyncServiceStub(channel)
        self._with_disk_keys = with_disk_keys

    async def list_changes(
        self, tenant_id: TenantId, user_id: UserId, after_version: int
    ) -> list[sync_pb2.ListChangesResponse]:
        """Every page, the last one included. Raises Unavailable when control ends early."""
        request = sync_pb2.ListChangesRequest(
            tenant_id=tenant_id,
            user_id=user_id,
            after_version=after_version,
            with_disk_key=self._with_disk_keys,
        )
        pages = [page async for page in self._pages(request)]
        if not pages or not pages[-1].last:
            raise Unavailable("control ended a list of changes before its last page")
        return pages

    async def join(self, request: sync_pb2.JoinWorkerRequest) -> float:
        """Returns the lease in seconds. Raises Incompatible when control works differently."""
        try:
            response = await self._stub.JoinWorker(request, timeout=JOIN_LIMIT_S)
        except grpc.aio.AioRpcError as exc:
            raise error_from(exc) from exc
        return float(response.lease_s)

    async def _pages(
        self, request: sync_pb2.ListChangesRequest
    ) -> AsyncIterator[sync_pb2.ListChangesResponse]:
        try:
            async for page in self._stub.ListChanges(request, timeout=LIST_LIMIT_S):
                yield page
        except grpc.aio.AioRpcError as exc:
            raise error_from(exc) from exc


class Lease:
    """Keeps this worker joined. Not joined, then joined, then draining.

    joined: set from the first answer of control on.
    """

    def __init__(self, link: ControlLink, identity: sync_pb2.JoinWorkerRequest) -> None:
        self._link = link
        self._identity = identity
        self.joined = asyncio.Event()

    async def keep(self) -> None:
        """Join and renew until cancelled. Waits while control is not there, and before the first
        answer while another process has our id. Raises what control refuses us with otherwise."""
        while True:
            try:
                lease_s = await self._link.join(self._request())
            except InferScaleError as exc:
                if not self._is_transient(exc):
                    raise
                _log.warning("worker.join_failed", exc=exc)
                await asyncio.sleep(RETRY_S)
                continue
            if not self.joined.is_set():
                _log.info("worker.joined", lease_s=lease_s)
                self.joined.set()
            await asyncio.sleep(lease_s / RENEWALS_PER_LEASE)

    async def announce_draining(self) -> None:
        """Tell control to send nothing new. A control that is away notices by the lease."""
        if not self.joined.is_set():
            return
        try:
            await self._link.join(self._request(draining=True))
        except InferScaleError as exc:
            _log.warning("worker.draining_not_announced", exc=exc)

    def _request(self, *, draining: bool = False) -> sync_pb2.JoinWorkerRequest:
        request = sync_pb2.JoinWorkerRequest(draining=draining, renewal=self.joined.is_set())
        request.MergeFrom(self._identity)
        return request

    def _is_transient(self, exc: InferScaleError) -> bool:
        if isinstance(exc, WorkerIdTaken):
            return not self.joined.is_set()
        return exc.code in {"unavailable", "deadline_exceeded", "store", "internal"}

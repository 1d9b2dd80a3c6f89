"""TenantService over gRPC."""

from __future__ import annotations

from typing import Any

import grpc.aio

from inferscale_core.ids import TenantId
from inferscale_core.rpc.identity import current_principal
from inferscale_core.rpc.pb.inferscale.v1 import tenant_pb2 as pb
from inferscale_core.rpc.pb.inferscale.v1.tenant_pb2_grpc import TenantServiceServicer
from services.control.tenants import convert
from services.control.tenants.use_cases import TenantUseCases
from services.control.validation import check_identifier, check_tenant_id

_Context = grpc.aio.ServicerContext[Any, Any]


class TenantServicer(TenantServiceServicer):
    def __init__(self, tenants: TenantUseCases) -> None:
        self._tenants = tenants

    async def CreateTenant(
        self, request: pb.CreateTenantRequest, context: _Context
    ) -> pb.CreateTenantResponse:
        created = await self._tenants.create(convert.create_tenant_from_proto(request))
        return pb.CreateTenantResponse(
            tenant=convert.tenant_to_proto(created.tenant),
            api_key=created.secret,
            key_id=created.key.key_id,
        )

    async def GetTenant(
        self, request: pb.GetTenantRequest, context: _Context
    ) -> pb.GetTenantResponse:
        tenant_id = convert.optional_tenant_from_proto(request.tenant_id)
        tenant = await self._tenants.get(current_principal(), tenant_id)
        return pb.GetTenantResponse(
            tenant=convert.tenant_to_proto(tenant), num_facts=tenant.num_facts
        )

    async def SetQuotas(
        self, request: pb.SetQuotasRequest, context: _Context
    ) -> pb.SetQuotasResponse:
        tenant_id = TenantId(check_tenant_id("tenant_id", request.tenant_id))
        quotas = convert.quotas_from_proto(request.quotas)
        tenant = await self._tenants.set_quotas(tenant_id, quotas)
        return pb.SetQuotasResponse(tenant=convert.tenant_to_proto(tenant))

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: _Context
    ) -> pb.CreateApiKeyResponse:
        tenant_id = convert.optional_tenant_from_proto(request.tenant_id)
        label = convert.label_from_proto(request.label)
        created = await self._tenants.create_key(current_principal(), tenant_id, label)
        return pb.CreateApiKeyResponse(key=convert.key_to_proto(created.key), secret=created.secret)

    async def ListApiKeys(
        self, request: pb.ListApiKeysRequest, context: _Context
    ) -> pb.ListApiKeysResponse:
        tenant_id = convert.optional_tenant_from_proto(request.tenant_id)
        keys = await self._tenants.list_keys(current_principal(), tenant_id)
        return pb.ListApiKeysResponse(keys=[convert.key_to_proto(key) for key in keys])

    async def RevokeApiKey(
        self, request: pb.RevokeApiKeyRequest, context: _Context
    ) -> pb.RevokeApiKeyResponse:
        tenant_id = convert.optional_tenant_from_proto(request.tenant_id)
        key_id = check_identifier("key_id", request.key_id)
        key = await self._tenants.revoke_key(current_principal(), tenant_id, key_id)
        return pb.RevokeApiKeyResponse(key=convert.key_to_proto(key))

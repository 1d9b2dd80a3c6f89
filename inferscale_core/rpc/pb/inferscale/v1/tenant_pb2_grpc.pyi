from collections.abc import AsyncIterator, Awaitable

import grpc.aio

from . import tenant_pb2 as pb

class TenantServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    CreateTenant: grpc.aio.UnaryUnaryMultiCallable[pb.CreateTenantRequest, pb.CreateTenantResponse]
    GetTenant: grpc.aio.UnaryUnaryMultiCallable[pb.GetTenantRequest, pb.GetTenantResponse]
    SetQuotas: grpc.aio.UnaryUnaryMultiCallable[pb.SetQuotasRequest, pb.SetQuotasResponse]
    CreateApiKey: grpc.aio.UnaryUnaryMultiCallable[pb.CreateApiKeyRequest, pb.CreateApiKeyResponse]
    ListApiKeys: grpc.aio.UnaryUnaryMultiCallable[pb.ListApiKeysRequest, pb.ListApiKeysResponse]
    RevokeApiKey: grpc.aio.UnaryUnaryMultiCallable[pb.RevokeApiKeyRequest, pb.RevokeApiKeyResponse]

class TenantServiceServicer:
    def CreateTenant(
        self,
        request: pb.CreateTenantRequest,
        context: grpc.aio.ServicerContext[pb.CreateTenantRequest, pb.CreateTenantResponse],
    ) -> Awaitable[pb.CreateTenantResponse]: ...
    def GetTenant(
        self,
        request: pb.GetTenantRequest,
        context: grpc.aio.ServicerContext[pb.GetTenantRequest, pb.GetTenantResponse],
    ) -> Awaitable[pb.GetTenantResponse]: ...
    def SetQuotas(
        self,
        request: pb.SetQuotasRequest,
        context: grpc.aio.ServicerContext[pb.SetQuotasRequest, pb.SetQuotasResponse],
    ) -> Awaitable[pb.SetQuotasResponse]: ...
    def CreateApiKey(
        self,
        request: pb.CreateApiKeyRequest,
        context: grpc.aio.ServicerContext[pb.CreateApiKeyRequest, pb.CreateApiKeyResponse],
    ) -> Awaitable[pb.CreateApiKeyResponse]: ...
    def ListApiKeys(
        self,
        request: pb.ListApiKeysRequest,
        context: grpc.aio.ServicerContext[pb.ListApiKeysRequest, pb.ListApiKeysResponse],
    ) -> Awaitable[pb.ListApiKeysResponse]: ...
    def RevokeApiKey(
        self,
        request: pb.RevokeApiKeyRequest,
        context: grpc.aio.ServicerContext[pb.RevokeApiKeyRequest, pb.RevokeApiKeyResponse],
    ) -> Awaitable[pb.RevokeApiKeyResponse]: ...

def add_TenantServiceServicer_to_server(
    servicer: TenantServiceServicer, server: grpc.aio.Server
) -> None: ...

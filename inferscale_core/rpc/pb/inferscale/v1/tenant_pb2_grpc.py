"""Client and server classes corresponding to protobuf-defined services."""
import grpc
import warnings
from ...inferscale.v1 import tenant_pb2 as inferscale_dot_v1_dot_tenant__pb2
GRPC_GENERATED_VERSION = '1.76.0'
GRPC_VERSION = grpc.__version__
_version_not_supported = False
try:
    from grpc._utilities import first_version_is_lower
    _version_not_supported = first_version_is_lower(GRPC_VERSION, GRPC_GENERATED_VERSION)
except ImportError:
    _version_not_supported = True
if _version_not_supported:
    raise RuntimeError(f'The grpc package installed is at version {GRPC_VERSION},' + ' but the generated code in inferscale/v1/tenant_pb2_grpc.py depends on' + f' grpcio>={GRPC_GENERATED_VERSION}.' + f' Please upgrade your grpc module to grpcio>={GRPC_GENERATED_VERSION}' + f' or downgrade your generated code using grpcio-tools<={GRPC_VERSION}.')

class TenantServiceStub(object):
    """Tenants, their keys and their quotas. CreateTenant, GetTenant of another tenant and SetQuotas need
    the operator's credential; a tenant's own key may read that tenant and manage its keys.
    """

    def __init__(self, channel):
        """Constructor.

        Args:
            channel: A grpc.Channel.
        """
        self.CreateTenant = channel.unary_unary('/inferscale.v1.TenantService/CreateTenant', request_serializer=inferscale_dot_v1_dot_tenant__pb2.CreateTenantRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_tenant__pb2.CreateTenantResponse.FromString, _registered_method=True)
        self.GetTenant = channel.unary_unary('/inferscale.v1.TenantService/GetTenant', request_serializer=inferscale_dot_v1_dot_tenant__pb2.GetTenantRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_tenant__pb2.GetTenantResponse.FromString, _registered_method=True)
        self.SetQuotas = channel.unary_unary('/inferscale.v1.TenantService/SetQuotas', request_serializer=inferscale_dot_v1_dot_tenant__pb2.SetQuotasRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_tenant__pb2.SetQuotasResponse.FromString, _registered_method=True)
        self.CreateApiKey = channel.unary_unary('/inferscale.v1.TenantService/CreateApiKey', request_serializer=inferscale_dot_v1_dot_tenant__pb2.CreateApiKeyRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_tenant__pb2.CreateApiKeyResponse.FromString, _registered_method=True)
        self.ListApiKeys = channel.unary_unary('/inferscale.v1.TenantService/ListApiKeys', request_serializer=inferscale_dot_v1_dot_tenant__pb2.ListApiKeysRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_tenant__pb2.ListApiKeysResponse.FromString, _registered_method=True)
        self.RevokeApiKey = channel.unary_unary('/inferscale.v1.TenantService/RevokeApiKey', request_serializer=inferscale_dot_v1_dot_tenant__pb2.RevokeApiKeyRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_tenant__pb2.RevokeApiKeyResponse.FromString, _registered_method=True)

class TenantServiceServicer(object):
    """Tenants, their keys and their quotas. CreateTenant, GetTenant of another tenant and SetQuotas need
    the operator's credential; a tenant's own key may read that tenant and manage its keys.
    """

    def CreateTenant(self, request, context):
        """Creates a tenant and its first API key. Needs the operator's credential.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def GetTenant(self, request, context):
        """A tenant and how many facts it has.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def SetQuotas(self, request, context):
        """Replaces both quotas. Lower ones delete nothing. Needs the operator's credential.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def CreateApiKey(self, request, context):
        """The secret is in the response once and is stored only as a hash.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def ListApiKeys(self, request, context):
        """All keys of a tenant, revoked ones too, oldest first. Never their secrets.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def RevokeApiKey(self, request, context):
        """The key is refused from now on. Revoking it again changes nothing.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

def add_TenantServiceServicer_to_server(servicer, server):
    rpc_method_handlers = {'CreateTenant': grpc.unary_unary_rpc_method_handler(servicer.CreateTenant, request_deserializer=inferscale_dot_v1_dot_tenant__pb2.CreateTenantRequest.FromString, response_serializer=inferscale_dot_v1_dot_tenant__pb2.CreateTenantResponse.SerializeToString), 'GetTenant': grpc.unary_unary_rpc_method_handler(servicer.GetTenant, request_deserializer=inferscale_dot_v1_dot_tenant__pb2.GetTenantRequest.FromString, response_serializer=inferscale_dot_v1_dot_tenant__pb2.GetTenantResponse.SerializeToString), 'SetQuotas': grpc.unary_unary_rpc_method_handler(servicer.SetQuotas, request_deserializer=inferscale_dot_v1_dot_tenant__pb2.SetQuotasRequest.FromString, response_serializer=inferscale_dot_v1_dot_tenant__pb2.SetQuotasResponse.SerializeToString), 'CreateApiKey': grpc.unary_unary_rpc_method_handler(servicer.CreateApiKey, request_deserializer=inferscale_dot_v1_dot_tenant__pb2.CreateApiKeyRequest.FromString, response_serializer=inferscale_dot_v1_dot_tenant__pb2.CreateApiKeyResponse.SerializeToString), 'ListApiKeys': grpc.unary_unary_rpc_method_handler(servicer.ListApiKeys, request_deserializer=inferscale_dot_v1_dot_tenant__pb2.ListApiKeysRequest.FromString, response_serializer=inferscale_dot_v1_dot_tenant__pb2.ListApiKeysResponse.SerializeToString), 'RevokeApiKey': grpc.unary_unary_rpc_method_handler(servicer.RevokeApiKey, request_deserializer=inferscale_dot_v1_dot_tenant__pb2.RevokeApiKeyRequest.FromString, response_serializer=inferscale_dot_v1_dot_tenant__pb2.RevokeApiKeyResponse.SerializeToString)}
    generic_handler = grpc.method_handlers_generic_handler('inferscale.v1.TenantService', rpc_method_handlers)
    server.add_generic_rpc_handlers((generic_handler,))
    server.add_registered_method_handlers('inferscale.v1.TenantService', rpc_method_handlers)

class TenantService(object):
    """Tenants, their keys and their quotas. CreateTenant, GetTenant of another tenant and SetQuotas need
    the operator's credential; a tenant's own key may read that tenant and manage its keys.
    """

    @staticmethod
    def CreateTenant(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.TenantService/CreateTenant', inferscale_dot_v1_dot_tenant__pb2.CreateTenantRequest.SerializeToString, inferscale_dot_v1_dot_tenant__pb2.CreateTenantResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def GetTenant(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.TenantService/GetTenant', inferscale_dot_v1_dot_tenant__pb2.GetTenantRequest.SerializeToString, inferscale_dot_v1_dot_tenant__pb2.GetTenantResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def SetQuotas(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.TenantService/SetQuotas', inferscale_dot_v1_dot_tenant__pb2.SetQuotasRequest.SerializeToString, inferscale_dot_v1_dot_tenant__pb2.SetQuotasResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def CreateApiKey(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.TenantService/CreateApiKey', inferscale_dot_v1_dot_tenant__pb2.CreateApiKeyRequest.SerializeToString, inferscale_dot_v1_dot_tenant__pb2.CreateApiKeyResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def ListApiKeys(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.TenantService/ListApiKeys', inferscale_dot_v1_dot_tenant__pb2.ListApiKeysRequest.SerializeToString, inferscale_dot_v1_dot_tenant__pb2.ListApiKeysResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def RevokeApiKey(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.TenantService/RevokeApiKey', inferscale_dot_v1_dot_tenant__pb2.RevokeApiKeyRequest.SerializeToString, inferscale_dot_v1_dot_tenant__pb2.RevokeApiKeyResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)
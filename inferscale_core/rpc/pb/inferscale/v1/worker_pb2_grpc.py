"""Client and server classes corresponding to protobuf-defined services."""
import grpc
import warnings
from ...inferscale.v1 import worker_pb2 as inferscale_dot_v1_dot_worker__pb2
GRPC_GENERATED_VERSION = '1.76.0'
GRPC_VERSION = grpc.__version__
_version_not_supported = False
try:
    from grpc._utilities import first_version_is_lower
    _version_not_supported = first_version_is_lower(GRPC_VERSION, GRPC_GENERATED_VERSION)
except ImportError:
    _version_not_supported = True
if _version_not_supported:
    raise RuntimeError(f'The grpc package installed is at version {GRPC_VERSION},' + ' but the generated code in inferscale/v1/worker_pb2_grpc.py depends on' + f' grpcio>={GRPC_GENERATED_VERSION}.' + f' Please upgrade your grpc module to grpcio>={GRPC_GENERATED_VERSION}' + f' or downgrade your generated code using grpcio-tools<={GRPC_VERSION}.')

class WorkerServiceStub(object):
    """Served by a worker, called by control with the internal token. Here the tenant and user are
    fields, since control has authenticated the caller.
    """

    def __init__(self, channel):
        """Constructor.

        Args:
            channel: A grpc.Channel.
        """
        self.Encode = channel.unary_stream('/inferscale.v1.WorkerService/Encode', request_serializer=inferscale_dot_v1_dot_worker__pb2.EncodeRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_worker__pb2.EncodeResponse.FromString, _registered_method=True)
        self.Generate = channel.unary_stream('/inferscale.v1.WorkerService/Generate', request_serializer=inferscale_dot_v1_dot_worker__pb2.GenerateRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_worker__pb2.GenerateResponse.FromString, _registered_method=True)
        self.Forget = channel.unary_unary('/inferscale.v1.WorkerService/Forget', request_serializer=inferscale_dot_v1_dot_worker__pb2.ForgetRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_worker__pb2.ForgetResponse.FromString, _registered_method=True)
        self.CacheStatus = channel.unary_unary('/inferscale.v1.WorkerService/CacheStatus', request_serializer=inferscale_dot_v1_dot_worker__pb2.CacheStatusRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_worker__pb2.CacheStatusResponse.FromString, _registered_method=True)
        self.CountTokens = channel.unary_unary('/inferscale.v1.WorkerService/CountTokens', request_serializer=inferscale_dot_v1_dot_worker__pb2.CountTokensRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_worker__pb2.CountTokensResponse.FromString, _registered_method=True)

class WorkerServiceServicer(object):
    """Served by a worker, called by control with the internal token. Here the tenant and user are
    fields, since control has authenticated the caller.
    """

    def Encode(self, request, context):
        """Encodes every live fact of the user whose chunk is missing, wave by wave, and streams one
        result for each. Ends at once when nothing is missing.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def Generate(self, request, context):
        """Answers a chat: the worker's part of ChatService.Chat.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def Forget(self, request, context):
        """Drops facts, and every chunk that depends on them, from the user cache and all tiers. Answers
        once no chat that was given any of what is deleted is in the engine any more.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def CacheStatus(self, request, context):
        """What is held for a user, and how full the worker is.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def CountTokens(self, request, context):
        """Counts the tokens of facts as encoding would. Keeps nothing of them and asks no engine.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

def add_WorkerServiceServicer_to_server(servicer, server):
    rpc_method_handlers = {'Encode': grpc.unary_stream_rpc_method_handler(servicer.Encode, request_deserializer=inferscale_dot_v1_dot_worker__pb2.EncodeRequest.FromString, response_serializer=inferscale_dot_v1_dot_worker__pb2.EncodeResponse.SerializeToString), 'Generate': grpc.unary_stream_rpc_method_handler(servicer.Generate, request_deserializer=inferscale_dot_v1_dot_worker__pb2.GenerateRequest.FromString, response_serializer=inferscale_dot_v1_dot_worker__pb2.GenerateResponse.SerializeToString), 'Forget': grpc.unary_unary_rpc_method_handler(servicer.Forget, request_deserializer=inferscale_dot_v1_dot_worker__pb2.ForgetRequest.FromString, response_serializer=inferscale_dot_v1_dot_worker__pb2.ForgetResponse.SerializeToString), 'CacheStatus': grpc.unary_unary_rpc_method_handler(servicer.CacheStatus, request_deserializer=inferscale_dot_v1_dot_worker__pb2.CacheStatusRequest.FromString, response_serializer=inferscale_dot_v1_dot_worker__pb2.CacheStatusResponse.SerializeToString), 'CountTokens': grpc.unary_unary_rpc_method_handler(servicer.CountTokens, request_deserializer=inferscale_dot_v1_dot_worker__pb2.CountTokensRequest.FromString, response_serializer=inferscale_dot_v1_dot_worker__pb2.CountTokensResponse.SerializeToString)}
    generic_handler = grpc.method_handlers_generic_handler('inferscale.v1.WorkerService', rpc_method_handlers)
    server.add_generic_rpc_handlers((generic_handler,))
    server.add_registered_method_handlers('inferscale.v1.WorkerService', rpc_method_handlers)

class WorkerService(object):
    """Served by a worker, called by control with the internal token. Here the tenant and user are
    fields, since control has authenticated the caller.
    """

    @staticmethod
    def Encode(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_stream(request, target, '/inferscale.v1.WorkerService/Encode', inferscale_dot_v1_dot_worker__pb2.EncodeRequest.SerializeToString, inferscale_dot_v1_dot_worker__pb2.EncodeResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def Generate(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_stream(request, target, '/inferscale.v1.WorkerService/Generate', inferscale_dot_v1_dot_worker__pb2.GenerateRequest.SerializeToString, inferscale_dot_v1_dot_worker__pb2.GenerateResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def Forget(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.WorkerService/Forget', inferscale_dot_v1_dot_worker__pb2.ForgetRequest.SerializeToString, inferscale_dot_v1_dot_worker__pb2.ForgetResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def CacheStatus(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.WorkerService/CacheStatus', inferscale_dot_v1_dot_worker__pb2.CacheStatusRequest.SerializeToString, inferscale_dot_v1_dot_worker__pb2.CacheStatusResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def CountTokens(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.WorkerService/CountTokens', inferscale_dot_v1_dot_worker__pb2.CountTokensRequest.SerializeToString, inferscale_dot_v1_dot_worker__pb2.CountTokensResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)
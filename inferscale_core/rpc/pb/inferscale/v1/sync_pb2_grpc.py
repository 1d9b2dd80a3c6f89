"""Client and server classes corresponding to protobuf-defined services."""
import grpc
import warnings
from ...inferscale.v1 import sync_pb2 as inferscale_dot_v1_dot_sync__pb2
GRPC_GENERATED_VERSION = '1.76.0'
GRPC_VERSION = grpc.__version__
_version_not_supported = False
try:
    from grpc._utilities import first_version_is_lower
    _version_not_supported = first_version_is_lower(GRPC_VERSION, GRPC_GENERATED_VERSION)
except ImportError:
    _version_not_supported = True
if _version_not_supported:
    raise RuntimeError(f'The grpc package installed is at version {GRPC_VERSION},' + ' but the generated code in inferscale/v1/sync_pb2_grpc.py depends on' + f' grpcio>={GRPC_GENERATED_VERSION}.' + f' Please upgrade your grpc module to grpcio>={GRPC_GENERATED_VERSION}' + f' or downgrade your generated code using grpcio-tools<={GRPC_VERSION}.')

class SyncServiceStub(object):
    """Served by control, called by workers with the internal token. Workers have no database access.
    """

    def __init__(self, channel):
        """Constructor.

        Args:
            channel: A grpc.Channel.
        """
        self.ListChanges = channel.unary_stream('/inferscale.v1.SyncService/ListChanges', request_serializer=inferscale_dot_v1_dot_sync__pb2.ListChangesRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_sync__pb2.ListChangesResponse.FromString, _registered_method=True)
        self.JoinWorker = channel.unary_unary('/inferscale.v1.SyncService/JoinWorker', request_serializer=inferscale_dot_v1_dot_sync__pb2.JoinWorkerRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_sync__pb2.JoinWorkerResponse.FromString, _registered_method=True)
        self.RemoveWorker = channel.unary_unary('/inferscale.v1.SyncService/RemoveWorker', request_serializer=inferscale_dot_v1_dot_sync__pb2.RemoveWorkerRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_sync__pb2.RemoveWorkerResponse.FromString, _registered_method=True)

class SyncServiceServicer(object):
    """Served by control, called by workers with the internal token. Workers have no database access.
    """

    def ListChanges(self, request, context):
        """What changed for one user after a version: live facts and turns written since, and ids removed.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def JoinWorker(self, request, context):
        """Registers a worker or renews its lease. Refused with FAILED_PRECONDITION when its embedder is
        not control's (reason "incompatible"), and when its id belongs to another process (reason
        "worker_id_taken"): one that asks for the first time gets the id when the other drains, is
        reached at the same address or has let its lease end, and one that renews has lost it for good.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def RemoveWorker(self, request, context):
        """For operators, with their credential: forgets a worker that will never come back, and ends the
        pending lines that deletion receipts hold for it. NOT_FOUND when no such worker has joined.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

def add_SyncServiceServicer_to_server(servicer, server):
    rpc_method_handlers = {'ListChanges': grpc.unary_stream_rpc_method_handler(servicer.ListChanges, request_deserializer=inferscale_dot_v1_dot_sync__pb2.ListChangesRequest.FromString, response_serializer=inferscale_dot_v1_dot_sync__pb2.ListChangesResponse.SerializeToString), 'JoinWorker': grpc.unary_unary_rpc_method_handler(servicer.JoinWorker, request_deserializer=inferscale_dot_v1_dot_sync__pb2.JoinWorkerRequest.FromString, response_serializer=inferscale_dot_v1_dot_sync__pb2.JoinWorkerResponse.SerializeToString), 'RemoveWorker': grpc.unary_unary_rpc_method_handler(servicer.RemoveWorker, request_deserializer=inferscale_dot_v1_dot_sync__pb2.RemoveWorkerRequest.FromString, response_serializer=inferscale_dot_v1_dot_sync__pb2.RemoveWorkerResponse.SerializeToString)}
    generic_handler = grpc.method_handlers_generic_handler('inferscale.v1.SyncService', rpc_method_handlers)
    server.add_generic_rpc_handlers((generic_handler,))
    server.add_registered_method_handlers('inferscale.v1.SyncService', rpc_method_handlers)

class SyncService(object):
    """Served by control, called by workers with the internal token. Workers have no database access.
    """

    @staticmethod
    def ListChanges(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_stream(request, target, '/inferscale.v1.SyncService/ListChanges', inferscale_dot_v1_dot_sync__pb2.ListChangesRequest.SerializeToString, inferscale_dot_v1_dot_sync__pb2.ListChangesResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def JoinWorker(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.SyncService/JoinWorker', inferscale_dot_v1_dot_sync__pb2.JoinWorkerRequest.SerializeToString, inferscale_dot_v1_dot_sync__pb2.JoinWorkerResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def RemoveWorker(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.SyncService/RemoveWorker', inferscale_dot_v1_dot_sync__pb2.RemoveWorkerRequest.SerializeToString, inferscale_dot_v1_dot_sync__pb2.RemoveWorkerResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)
"""Client and server classes corresponding to protobuf-defined services."""
import grpc
import warnings
from ...inferscale.v1 import memory_pb2 as inferscale_dot_v1_dot_memory__pb2
GRPC_GENERATED_VERSION = '1.76.0'
GRPC_VERSION = grpc.__version__
_version_not_supported = False
try:
    from grpc._utilities import first_version_is_lower
    _version_not_supported = first_version_is_lower(GRPC_VERSION, GRPC_GENERATED_VERSION)
except ImportError:
    _version_not_supported = True
if _version_not_supported:
    raise RuntimeError(f'The grpc package installed is at version {GRPC_VERSION},' + ' but the generated code in inferscale/v1/memory_pb2_grpc.py depends on' + f' grpcio>={GRPC_GENERATED_VERSION}.' + f' Please upgrade your grpc module to grpcio>={GRPC_GENERATED_VERSION}' + f' or downgrade your generated code using grpcio-tools<={GRPC_VERSION}.')

class MemoryServiceStub(object):
    """Facts about a tenant's users, and the conversations they came from.

    The tenant is the one the credential belongs to; no request field can name another. Every
    mutation takes a `request_id` of the caller's choice: repeated with the same content it returns
    the first answer again, with other content it is INVALID_ARGUMENT. It is remembered for 90 days,
    unless the operator has set another time. All mutations return the user's `memory_version` after
    the change; pass it to a read to see that change everywhere.
    """

    def __init__(self, channel):
        """Constructor.

        Args:
            channel: A grpc.Channel.
        """
        self.AddMemory = channel.unary_unary('/inferscale.v1.MemoryService/AddMemory', request_serializer=inferscale_dot_v1_dot_memory__pb2.AddMemoryRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.AddMemoryResponse.FromString, _registered_method=True)
        self.BatchAddMemories = channel.unary_unary('/inferscale.v1.MemoryService/BatchAddMemories', request_serializer=inferscale_dot_v1_dot_memory__pb2.BatchAddMemoriesRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.BatchAddMemoriesResponse.FromString, _registered_method=True)
        self.GetMemory = channel.unary_unary('/inferscale.v1.MemoryService/GetMemory', request_serializer=inferscale_dot_v1_dot_memory__pb2.GetMemoryRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.GetMemoryResponse.FromString, _registered_method=True)
        self.ListMemories = channel.unary_unary('/inferscale.v1.MemoryService/ListMemories', request_serializer=inferscale_dot_v1_dot_memory__pb2.ListMemoriesRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.ListMemoriesResponse.FromString, _registered_method=True)
        self.UpdateMemory = channel.unary_unary('/inferscale.v1.MemoryService/UpdateMemory', request_serializer=inferscale_dot_v1_dot_memory__pb2.UpdateMemoryRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.UpdateMemoryResponse.FromString, _registered_method=True)
        self.DeleteMemory = channel.unary_unary('/inferscale.v1.MemoryService/DeleteMemory', request_serializer=inferscale_dot_v1_dot_memory__pb2.DeleteMemoryRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.DeleteMemoryResponse.FromString, _registered_method=True)
        self.GetDeletionReceipt = channel.unary_unary('/inferscale.v1.MemoryService/GetDeletionReceipt', request_serializer=inferscale_dot_v1_dot_memory__pb2.GetDeletionReceiptRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.GetDeletionReceiptResponse.FromString, _registered_method=True)
        self.SearchMemories = channel.unary_unary('/inferscale.v1.MemoryService/SearchMemories', request_serializer=inferscale_dot_v1_dot_memory__pb2.SearchMemoriesRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.SearchMemoriesResponse.FromString, _registered_method=True)
        self.AppendTurns = channel.unary_unary('/inferscale.v1.MemoryService/AppendTurns', request_serializer=inferscale_dot_v1_dot_memory__pb2.AppendTurnsRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.AppendTurnsResponse.FromString, _registered_method=True)
        self.DeleteTurns = channel.unary_unary('/inferscale.v1.MemoryService/DeleteTurns', request_serializer=inferscale_dot_v1_dot_memory__pb2.DeleteTurnsRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_memory__pb2.DeleteTurnsResponse.FromString, _registered_method=True)

class MemoryServiceServicer(object):
    """Facts about a tenant's users, and the conversations they came from.

    The tenant is the one the credential belongs to; no request field can name another. Every
    mutation takes a `request_id` of the caller's choice: repeated with the same content it returns
    the first answer again, with other content it is INVALID_ARGUMENT. It is remembered for 90 days,
    unless the operator has set another time. All mutations return the user's `memory_version` after
    the change; pass it to a read to see that change everywhere.
    """

    def AddMemory(self, request, context):
        """Stores one fact and queues its encoding.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def BatchAddMemories(self, request, context):
        """Items are stored or refused one by one; see the result of each.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def GetMemory(self, request, context):
        """One fact, with its encoding and where its chunks are held. NOT_FOUND when it is deleted.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def ListMemories(self, request, context):
        """All facts of a user, in pages. Not a snapshot: a fact that is updated meanwhile comes once more,
        in its new version, and one that is deleted meanwhile may be missing.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def UpdateMemory(self, request, context):
        """Replaces a fact by its next revision. No chat that starts afterwards sees the old one, whose KV is
        dropped as by a delete. There is no receipt: the old text stays in Postgres, as history that no
        call shows, until the fact is deleted.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def DeleteMemory(self, request, context):
        """Deletes a fact for good. No answer that starts afterwards is given from it, and a chat that is
        being answered from it, or from what has seen it, ends or is planned again (`Chat`) before its
        worker acknowledges. NOT_FOUND when it is deleted already.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def GetDeletionReceipt(self, request, context):
        """The receipt of an earlier delete, with what has been purged since.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def SearchMemories(self, request, context):
        """The facts nearest to a text, by cosine similarity. No model is asked.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def AppendTurns(self, request, context):
        """Adds messages to the end of a conversation; the conversation begins with its first ones.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

    def DeleteTurns(self, request, context):
        """Deletes turns, and drops the chunks that were encoded behind them. Chats that are being answered
        from such a chunk end or are planned again, as by a delete.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

def add_MemoryServiceServicer_to_server(servicer, server):
    rpc_method_handlers = {'AddMemory': grpc.unary_unary_rpc_method_handler(servicer.AddMemory, request_deserializer=inferscale_dot_v1_dot_memory__pb2.AddMemoryRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.AddMemoryResponse.SerializeToString), 'BatchAddMemories': grpc.unary_unary_rpc_method_handler(servicer.BatchAddMemories, request_deserializer=inferscale_dot_v1_dot_memory__pb2.BatchAddMemoriesRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.BatchAddMemoriesResponse.SerializeToString), 'GetMemory': grpc.unary_unary_rpc_method_handler(servicer.GetMemory, request_deserializer=inferscale_dot_v1_dot_memory__pb2.GetMemoryRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.GetMemoryResponse.SerializeToString), 'ListMemories': grpc.unary_unary_rpc_method_handler(servicer.ListMemories, request_deserializer=inferscale_dot_v1_dot_memory__pb2.ListMemoriesRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.ListMemoriesResponse.SerializeToString), 'UpdateMemory': grpc.unary_unary_rpc_method_handler(servicer.UpdateMemory, request_deserializer=inferscale_dot_v1_dot_memory__pb2.UpdateMemoryRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.UpdateMemoryResponse.SerializeToString), 'DeleteMemory': grpc.unary_unary_rpc_method_handler(servicer.DeleteMemory, request_deserializer=inferscale_dot_v1_dot_memory__pb2.DeleteMemoryRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.DeleteMemoryResponse.SerializeToString), 'GetDeletionReceipt': grpc.unary_unary_rpc_method_handler(servicer.GetDeletionReceipt, request_deserializer=inferscale_dot_v1_dot_memory__pb2.GetDeletionReceiptRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.GetDeletionReceiptResponse.SerializeToString), 'SearchMemories': grpc.unary_unary_rpc_method_handler(servicer.SearchMemories, request_deserializer=inferscale_dot_v1_dot_memory__pb2.SearchMemoriesRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.SearchMemoriesResponse.SerializeToString), 'AppendTurns': grpc.unary_unary_rpc_method_handler(servicer.AppendTurns, request_deserializer=inferscale_dot_v1_dot_memory__pb2.AppendTurnsRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.AppendTurnsResponse.SerializeToString), 'DeleteTurns': grpc.unary_unary_rpc_method_handler(servicer.DeleteTurns, request_deserializer=inferscale_dot_v1_dot_memory__pb2.DeleteTurnsRequest.FromString, response_serializer=inferscale_dot_v1_dot_memory__pb2.DeleteTurnsResponse.SerializeToString)}
    generic_handler = grpc.method_handlers_generic_handler('inferscale.v1.MemoryService', rpc_method_handlers)
    server.add_generic_rpc_handlers((generic_handler,))
    server.add_registered_method_handlers('inferscale.v1.MemoryService', rpc_method_handlers)

class MemoryService(object):
    """Facts about a tenant's users, and the conversations they came from.

    The tenant is the one the credential belongs to; no request field can name another. Every
    mutation takes a `request_id` of the caller's choice: repeated with the same content it returns
    the first answer again, with other content it is INVALID_ARGUMENT. It is remembered for 90 days,
    unless the operator has set another time. All mutations return the user's `memory_version` after
    the change; pass it to a read to see that change everywhere.
    """

    @staticmethod
    def AddMemory(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/AddMemory', inferscale_dot_v1_dot_memory__pb2.AddMemoryRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.AddMemoryResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def BatchAddMemories(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/BatchAddMemories', inferscale_dot_v1_dot_memory__pb2.BatchAddMemoriesRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.BatchAddMemoriesResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def GetMemory(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/GetMemory', inferscale_dot_v1_dot_memory__pb2.GetMemoryRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.GetMemoryResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def ListMemories(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/ListMemories', inferscale_dot_v1_dot_memory__pb2.ListMemoriesRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.ListMemoriesResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def UpdateMemory(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/UpdateMemory', inferscale_dot_v1_dot_memory__pb2.UpdateMemoryRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.UpdateMemoryResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def DeleteMemory(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/DeleteMemory', inferscale_dot_v1_dot_memory__pb2.DeleteMemoryRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.DeleteMemoryResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def GetDeletionReceipt(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/GetDeletionReceipt', inferscale_dot_v1_dot_memory__pb2.GetDeletionReceiptRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.GetDeletionReceiptResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def SearchMemories(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/SearchMemories', inferscale_dot_v1_dot_memory__pb2.SearchMemoriesRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.SearchMemoriesResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def AppendTurns(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/AppendTurns', inferscale_dot_v1_dot_memory__pb2.AppendTurnsRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.AppendTurnsResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)

    @staticmethod
    def DeleteTurns(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_unary(request, target, '/inferscale.v1.MemoryService/DeleteTurns', inferscale_dot_v1_dot_memory__pb2.DeleteTurnsRequest.SerializeToString, inferscale_dot_v1_dot_memory__pb2.DeleteTurnsResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)
"""Client and server classes corresponding to protobuf-defined services."""
import grpc
import warnings
from ...inferscale.v1 import chat_pb2 as inferscale_dot_v1_dot_chat__pb2
GRPC_GENERATED_VERSION = '1.76.0'
GRPC_VERSION = grpc.__version__
_version_not_supported = False
try:
    from grpc._utilities import first_version_is_lower
    _version_not_supported = first_version_is_lower(GRPC_VERSION, GRPC_GENERATED_VERSION)
except ImportError:
    _version_not_supported = True
if _version_not_supported:
    raise RuntimeError(f'The grpc package installed is at version {GRPC_VERSION},' + ' but the generated code in inferscale/v1/chat_pb2_grpc.py depends on' + f' grpcio>={GRPC_GENERATED_VERSION}.' + f' Please upgrade your grpc module to grpcio>={GRPC_GENERATED_VERSION}' + f' or downgrade your generated code using grpcio-tools<={GRPC_VERSION}.')

class ChatServiceStub(object):
    """Chat with a model that knows the user.
    """

    def __init__(self, channel):
        """Constructor.

        Args:
            channel: A grpc.Channel.
        """
        self.Chat = channel.unary_stream('/inferscale.v1.ChatService/Chat', request_serializer=inferscale_dot_v1_dot_chat__pb2.ChatRequest.SerializeToString, response_deserializer=inferscale_dot_v1_dot_chat__pb2.ChatResponse.FromString, _registered_method=True)

class ChatServiceServicer(object):
    """Chat with a model that knows the user.
    """

    def Chat(self, request, context):
        """Streams: `retrieved` once, `served` once with the first token, `delta` for each piece of text,
        `done` once. Cancelling the call aborts the engine's request.

        When a fact or turn that the chat has seen is deleted meanwhile, it is not answered from that.
        Before the first token it is planned again: a second `retrieved`, with the version that it now
        sees, takes the place of the first one. Behind it the call ends with ABORTED and the reason
        `answer_withdrawn`: what came of the answer had seen what is gone. Ask again. An update lets an
        answer end as it began.
        """
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details('Method not implemented!')
        raise NotImplementedError('Method not implemented!')

def add_ChatServiceServicer_to_server(servicer, server):
    rpc_method_handlers = {'Chat': grpc.unary_stream_rpc_method_handler(servicer.Chat, request_deserializer=inferscale_dot_v1_dot_chat__pb2.ChatRequest.FromString, response_serializer=inferscale_dot_v1_dot_chat__pb2.ChatResponse.SerializeToString)}
    generic_handler = grpc.method_handlers_generic_handler('inferscale.v1.ChatService', rpc_method_handlers)
    server.add_generic_rpc_handlers((generic_handler,))
    server.add_registered_method_handlers('inferscale.v1.ChatService', rpc_method_handlers)

class ChatService(object):
    """Chat with a model that knows the user.
    """

    @staticmethod
    def Chat(request, target, options=(), channel_credentials=None, call_credentials=None, insecure=False, compression=None, wait_for_ready=None, timeout=None, metadata=None):
        return grpc.experimental.unary_stream(request, target, '/inferscale.v1.ChatService/Chat', inferscale_dot_v1_dot_chat__pb2.ChatRequest.SerializeToString, inferscale_dot_v1_dot_chat__pb2.ChatResponse.FromString, options, channel_credentials, insecure, call_credentials, compression, wait_for_ready, timeout, metadata, _registered_method=True)
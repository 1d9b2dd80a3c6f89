"""Generated protocol buffer code."""
from google.protobuf import descriptor as _descriptor
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import runtime_version as _runtime_version
from google.protobuf import symbol_database as _symbol_database
from google.protobuf.internal import builder as _builder
_runtime_version.ValidateProtobufRuntimeVersion(_runtime_version.Domain.PUBLIC, 6, 31, 1, '', 'inferscale/v1/chat.proto')
_sym_db = _symbol_database.Default()
from ...inferscale.v1 import common_pb2 as inferscale_dot_v1_dot_common__pb2
DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(b'\n\x18inferscale/v1/chat.proto\x12\rinferscale.v1\x1a\x1ainferscale/v1/common.proto"\xbe\x02\n\x0bChatRequest\x12\x0f\n\x07user_id\x18\x01 \x01(\t\x12(\n\x08messages\x18\x02 \x03(\x0b2\x16.inferscale.v1.Message\x12\x0e\n\x01k\x18\x03 \x01(\rH\x00\x88\x01\x01\x12)\n\x08sampling\x18\x04 \x01(\x0b2\x17.inferscale.v1.Sampling\x12\r\n\x05model\x18\x05 \x01(\t\x12(\n\x04mode\x18\x06 \x01(\x0e2\x1a.inferscale.v1.ServingMode\x12\x1a\n\x12min_memory_version\x18\x07 \x01(\x04\x12\r\n\x05timed\x18\x08 \x01(\x08\x12\x17\n\ntext_facts\x18\t \x01(\rH\x01\x88\x01\x01\x12\'\n\x07scoring\x18\n \x01(\x0b2\x16.inferscale.v1.ScoringB\x04\n\x02_kB\r\n\x0b_text_facts"5\n\x07Scoring\x12\x0e\n\x06answer\x18\x01 \x01(\t\x12\x1a\n\x12compared_token_ids\x18\x02 \x03(\r"s\n\x06Scored\x12\x15\n\rprompt_digest\x18\x01 \x01(\t\x12\x17\n\x0fanswer_logprobs\x18\x02 \x03(\x01\x12\x14\n\x0ctop_token_id\x18\x03 \x01(\r\x12\x11\n\ttoken_ids\x18\x04 \x03(\r\x12\x10\n\x08logprobs\x18\x05 \x03(\x01"\xe4\x01\n\x0cChatResponse\x12-\n\tretrieved\x18\x01 \x01(\x0b2\x18.inferscale.v1.RetrievedH\x00\x12\'\n\x06served\x18\x02 \x01(\x0b2\x15.inferscale.v1.ServedH\x00\x12%\n\x05delta\x18\x03 \x01(\x0b2\x14.inferscale.v1.DeltaH\x00\x12#\n\x04done\x18\x04 \x01(\x0b2\x13.inferscale.v1.DoneH\x00\x12\'\n\x06scored\x18\x05 \x01(\x0b2\x15.inferscale.v1.ScoredH\x00B\x07\n\x05event"\xba\x01\n\tRetrieved\x12(\n\x05facts\x18\x01 \x03(\x0b2\x19.inferscale.v1.ServedFact\x12\x16\n\x0ememory_version\x18\x02 \x01(\x04\x12\x11\n\tworker_id\x18\x03 \x01(\t\x12\x16\n\x0emodel_revision\x18\x04 \x01(\t\x12\x0e\n\x06recipe\x18\x05 \x01(\t\x12\x17\n\x0fquestion_tokens\x18\x06 \x01(\r\x12\x17\n\x0fsearched_tokens\x18\x07 \x01(\r"\x80\x01\n\x06Served\x12(\n\x05facts\x18\x01 \x03(\x0b2\x19.inferscale.v1.ServedFact\x12#\n\x05usage\x18\x02 \x01(\x0b2\x14.inferscale.v1.Usage\x12\'\n\x07timings\x18\x03 \x01(\x0b2\x16.inferscale.v1.Timings"\x15\n\x05Delta\x12\x0c\n\x04text\x18\x01 \x01(\t"k\n\x04Done\x12\x15\n\rfinish_reason\x18\x01 \x01(\t\x12#\n\x05usage\x18\x02 \x01(\x0b2\x14.inferscale.v1.Usage\x12\'\n\x07timings\x18\x03 \x01(\x0b2\x16.inferscale.v1.Timings2P\n\x0bChatService\x12A\n\x04Chat\x12\x1a.inferscale.v1.ChatRequest\x1a\x1b.inferscale.v1.ChatResponse0\x01b\x06proto3')
_globals = globals()
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, _globals)
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'inferscale.v1.chat_pb2', _globals)
if not _descriptor._USE_C_DESCRIPTORS:
    DESCRIPTOR._loaded_options = None
    _globals['_CHATREQUEST']._serialized_start = 72
    _globals['_CHATREQUEST']._serialized_end = 390
    _globals['_SCORING']._serialized_start = 392
    _globals['_SCORING']._serialized_end = 445
    _globals['_SCORED']._serialized_start = 447
    _globals['_SCORED']._serialized_end = 562
    _globals['_CHATRESPONSE']._serialized_start = 565
    _globals['_CHATRESPONSE']._serialized_end = 793
    _globals['_RETRIEVED']._serialized_start = 796
    _globals['_RETRIEVED']._serialized_end = 982
    _globals['_SERVED']._serialized_start = 985
    _globals['_SERVED']._serialized_end = 1113
    _globals['_DELTA']._serialized_start = 1115
    _globals['_DELTA']._serialized_end = 1136
    _globals['_DONE']._serialized_start = 1138
    _globals['_DONE']._serialized_end = 1245
    _globals['_CHATSERVICE']._serialized_start = 1247
    _globals['_CHATSERVICE']._serialized_end = 1327
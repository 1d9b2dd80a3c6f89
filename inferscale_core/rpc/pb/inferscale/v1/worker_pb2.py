"""Generated protocol buffer code."""
from google.protobuf import descriptor as _descriptor
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import runtime_version as _runtime_version
from google.protobuf import symbol_database as _symbol_database
from google.protobuf.internal import builder as _builder
_runtime_version.ValidateProtobufRuntimeVersion(_runtime_version.Domain.PUBLIC, 6, 31, 1, '', 'inferscale/v1/worker.proto')
_sym_db = _symbol_database.Default()
from google.protobuf import timestamp_pb2 as google_dot_protobuf_dot_timestamp__pb2
from ...inferscale.v1 import chat_pb2 as inferscale_dot_v1_dot_chat__pb2
from ...inferscale.v1 import common_pb2 as inferscale_dot_v1_dot_common__pb2
DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(b'\n\x1ainferscale/v1/worker.proto\x12\rinferscale.v1\x1a\x1fgoogle/protobuf/timestamp.proto\x1a\x18inferscale/v1/chat.proto\x1a\x1ainferscale/v1/common.proto"W\n\x07UserRef\x12\x11\n\ttenant_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12\x16\n\x0ememory_version\x18\x03 \x01(\x04\x12\x10\n\x08kv_epoch\x18\x04 \x01(\x04",\n\x07FactRef\x12\x0f\n\x07fact_id\x18\x01 \x01(\t\x12\x10\n\x08revision\x18\x02 \x01(\r"5\n\rEncodeRequest\x12$\n\x04user\x18\x01 \x01(\x0b2\x16.inferscale.v1.UserRef"\xce\x02\n\x0eEncodeResponse\x12$\n\x04fact\x18\x01 \x01(\x0b2\x16.inferscale.v1.FactRef\x12)\n\x05state\x18\x02 \x01(\x0e2\x1a.inferscale.v1.EncodeState\x12\x0e\n\x06reason\x18\x03 \x01(\t\x12\x14\n\x0cchunk_digest\x18\x04 \x01(\t\x12\x12\n\nnum_tokens\x18\x05 \x01(\r\x12,\n\x0cprefix_facts\x18\x06 \x03(\x0b2\x16.inferscale.v1.FactRef\x12\x17\n\x0fprefix_turn_ids\x18\x07 \x03(\t\x12\x18\n\x10already_resident\x18\x08 \x01(\x08\x12\x16\n\x0emodel_revision\x18\t \x01(\t\x12\x13\n\x0brecipe_hash\x18\n \x01(\t\x12\x0e\n\x06recipe\x18\x0b \x01(\t\x12\x13\n\x0bsaw_as_text\x18\x0c \x01(\x08"\xa1\x02\n\x0fGenerateRequest\x12$\n\x04user\x18\x01 \x01(\x0b2\x16.inferscale.v1.UserRef\x12(\n\x08messages\x18\x02 \x03(\x0b2\x16.inferscale.v1.Message\x12\t\n\x01k\x18\x03 \x01(\r\x12)\n\x08sampling\x18\x04 \x01(\x0b2\x17.inferscale.v1.Sampling\x12(\n\x04mode\x18\x05 \x01(\x0e2\x1a.inferscale.v1.ServingMode\x12\r\n\x05timed\x18\x06 \x01(\x08\x12\x17\n\ntext_facts\x18\x07 \x01(\rH\x00\x88\x01\x01\x12\'\n\x07scoring\x18\x08 \x01(\x0b2\x16.inferscale.v1.ScoringB\r\n\x0b_text_facts"o\n\x10GenerateResponse\x12-\n\x08response\x18\x01 \x01(\x0b2\x1b.inferscale.v1.ChatResponse\x12,\n\x0cnot_resident\x18\x02 \x03(\x0b2\x16.inferscale.v1.FactRef"u\n\rForgetRequest\x12$\n\x04user\x18\x01 \x01(\x0b2\x16.inferscale.v1.UserRef\x12\x10\n\x08fact_ids\x18\x02 \x03(\t\x12\x1a\n\x12dependant_fact_ids\x18\x03 \x03(\t\x12\x10\n\x08turn_ids\x18\x04 \x03(\t"\xca\x01\n\x0eForgetResponse\x12\x12\n\nuser_cache\x18\x01 \x01(\r\x12\x14\n\x0carena_chunks\x18\x02 \x01(\r\x12\x13\n\x0bhost_chunks\x18\x03 \x01(\r\x12\x13\n\x0bdisk_chunks\x18\x04 \x01(\r\x12\x12\n\ndependants\x18\x05 \x01(\r\x12\x16\n\x0epending_chunks\x18\x06 \x01(\r\x12\x1b\n\x13pending_host_chunks\x18\x07 \x01(\r\x12\x1b\n\x13pending_disk_chunks\x18\x08 \x01(\r":\n\x12CacheStatusRequest\x12$\n\x04user\x18\x01 \x01(\x0b2\x16.inferscale.v1.UserRef"\x80\x01\n\x0bChunkStatus\x12$\n\x04fact\x18\x01 \x01(\x0b2\x16.inferscale.v1.FactRef\x12!\n\x04tier\x18\x02 \x01(\x0e2\x13.inferscale.v1.Tier\x12\x12\n\nnum_tokens\x18\x03 \x01(\r\x12\x14\n\x0cchunk_digest\x18\x04 \x01(\t"\x91\x02\n\x13CacheStatusResponse\x12*\n\x06chunks\x18\x01 \x03(\x0b2\x1a.inferscale.v1.ChunkStatus\x12\x17\n\x0fresident_chunks\x18\x02 \x01(\x04\x12\x16\n\x0eresident_bytes\x18\x03 \x01(\x04\x12\x16\n\x0ecapacity_bytes\x18\x04 \x01(\x04\x12\x14\n\x0cpinned_bytes\x18\x05 \x01(\x04\x12\x11\n\tevictions\x18\x06 \x01(\x04\x12\x16\n\x0ememory_version\x18\x07 \x01(\x04\x12\x1b\n\x13min_injected_tokens\x18\x08 \x01(\r\x12\'\n\x05tiers\x18\t \x03(\x0b2\x18.inferscale.v1.TierUsage"t\n\tTierUsage\x12!\n\x04tier\x18\x01 \x01(\x0e2\x13.inferscale.v1.Tier\x12\x16\n\x0eresident_bytes\x18\x02 \x01(\x04\x12\x16\n\x0ecapacity_bytes\x18\x03 \x01(\x04\x12\x14\n\x0cpinned_bytes\x18\x04 \x01(\x04"J\n\tStatement\x12\x0c\n\x04text\x18\x01 \x01(\t\x12/\n\x0boccurred_at\x18\x02 \x01(\x0b2\x1a.google.protobuf.Timestamp"B\n\x12CountTokensRequest\x12,\n\nstatements\x18\x01 \x03(\x0b2\x18.inferscale.v1.Statement"B\n\x13CountTokensResponse\x12\x12\n\nnum_tokens\x18\x01 \x03(\r\x12\x17\n\x0fmax_fact_tokens\x18\x02 \x01(\r2\x9a\x03\n\rWorkerService\x12G\n\x06Encode\x12\x1c.inferscale.v1.EncodeRequest\x1a\x1d.inferscale.v1.EncodeResponse0\x01\x12M\n\x08Generate\x12\x1e.inferscale.v1.GenerateRequest\x1a\x1f.inferscale.v1.GenerateResponse0\x01\x12E\n\x06Forget\x12\x1c.inferscale.v1.ForgetRequest\x1a\x1d.inferscale.v1.ForgetResponse\x12T\n\x0bCacheStatus\x12!.inferscale.v1.CacheStatusRequest\x1a".inferscale.v1.CacheStatusResponse\x12T\n\x0bCountTokens\x12!.inferscale.v1.CountTokensRequest\x1a".inferscale.v1.CountTokensResponseb\x06proto3')
_globals = globals()
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, _globals)
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'inferscale.v1.worker_pb2', _globals)
if not _descriptor._USE_C_DESCRIPTORS:
    DESCRIPTOR._loaded_options = None
    _globals['_USERREF']._serialized_start = 132
    _globals['_USERREF']._serialized_end = 219
    _globals['_FACTREF']._serialized_start = 221
    _globals['_FACTREF']._serialized_end = 265
    _globals['_ENCODEREQUEST']._serialized_start = 267
    _globals['_ENCODEREQUEST']._serialized_end = 320
    _globals['_ENCODERESPONSE']._serialized_start = 323
    _globals['_ENCODERESPONSE']._serialized_end = 657
    _globals['_GENERATEREQUEST']._serialized_start = 660
    _globals['_GENERATEREQUEST']._serialized_end = 949
    _globals['_GENERATERESPONSE']._serialized_start = 951
    _globals['_GENERATERESPONSE']._serialized_end = 1062
    _globals['_FORGETREQUEST']._serialized_start = 1064
    _globals['_FORGETREQUEST']._serialized_end = 1181
    _globals['_FORGETRESPONSE']._serialized_start = 1184
    _globals['_FORGETRESPONSE']._serialized_end = 1386
    _globals['_CACHESTATUSREQUEST']._serialized_start = 1388
    _globals['_CACHESTATUSREQUEST']._serialized_end = 1446
    _globals['_CHUNKSTATUS']._serialized_start = 1449
    _globals['_CHUNKSTATUS']._serialized_end = 1577
    _globals['_CACHESTATUSRESPONSE']._serialized_start = 1580
    _globals['_CACHESTATUSRESPONSE']._serialized_end = 1853
    _globals['_TIERUSAGE']._serialized_start = 1855
    _globals['_TIERUSAGE']._serialized_end = 1971
    _globals['_STATEMENT']._serialized_start = 1973
    _globals['_STATEMENT']._serialized_end = 2047
    _globals['_COUNTTOKENSREQUEST']._serialized_start = 2049
    _globals['_COUNTTOKENSREQUEST']._serialized_end = 2115
    _globals['_COUNTTOKENSRESPONSE']._serialized_start = 2117
    _globals['_COUNTTOKENSRESPONSE']._serialized_end = 2183
    _globals['_WORKERSERVICE']._serialized_start = 2186
    _globals['_WORKERSERVICE']._serialized_end = 2596
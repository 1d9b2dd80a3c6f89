"""Generated protocol buffer code."""
from google.protobuf import descriptor as _descriptor
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import runtime_version as _runtime_version
from google.protobuf import symbol_database as _symbol_database
from google.protobuf.internal import builder as _builder
_runtime_version.ValidateProtobufRuntimeVersion(_runtime_version.Domain.PUBLIC, 6, 31, 1, '', 'inferscale/v1/common.proto')
_sym_db = _symbol_database.Default()
DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(b'\n\x1ainferscale/v1/common.proto\x12\rinferscale.v1"\xcc\x01\n\x08Sampling\x12\x18\n\x0btemperature\x18\x01 \x01(\x02H\x00\x88\x01\x01\x12\x12\n\x05top_p\x18\x02 \x01(\x02H\x01\x88\x01\x01\x12\x17\n\nmax_tokens\x18\x03 \x01(\rH\x02\x88\x01\x01\x12\x11\n\x04seed\x18\x04 \x01(\x04H\x03\x88\x01\x01\x12\x0c\n\x04stop\x18\x05 \x03(\t\x12\x17\n\nmin_tokens\x18\x06 \x01(\rH\x04\x88\x01\x01B\x0e\n\x0c_temperatureB\x08\n\x06_top_pB\r\n\x0b_max_tokensB\x07\n\x05_seedB\r\n\x0b_min_tokens"(\n\x07Message\x12\x0c\n\x04role\x18\x01 \x01(\t\x12\x0f\n\x07content\x18\x02 \x01(\t"\xd2\x01\n\x05Usage\x12\x15\n\rprompt_tokens\x18\x01 \x01(\r\x12\x17\n\x0finjected_tokens\x18\x02 \x01(\r\x12\x19\n\x11native_hit_tokens\x18\x03 \x01(\r\x12\x18\n\x10prefilled_tokens\x18\x04 \x01(\r\x12\x19\n\x11completion_tokens\x18\x05 \x01(\r\x12\x16\n\x0efacts_injected\x18\x06 \x01(\r\x12\x18\n\x10facts_native_hit\x18\x07 \x01(\r\x12\x17\n\x0ffacts_prefilled\x18\x08 \x01(\r"\xb5\x01\n\x07Timings\x12\x10\n\x08embed_ms\x18\x01 \x01(\x01\x12\x13\n\x0bretrieve_ms\x18\x02 \x01(\x01\x12\x0f\n\x07plan_ms\x18\x03 \x01(\x01\x12\x10\n\x08queue_ms\x18\x04 \x01(\x01\x12\x11\n\tinject_ms\x18\x05 \x01(\x01\x12\x12\n\nprefill_ms\x18\x06 \x01(\x01\x12\x16\n\x0efirst_token_ms\x18\x07 \x01(\x01\x12\x10\n\x08total_ms\x18\x08 \x01(\x01\x12\x0f\n\x07sync_ms\x18\t \x01(\x01"\x8b\x01\n\nServedFact\x12\x11\n\tmemory_id\x18\x01 \x01(\t\x12\x10\n\x08revision\x18\x02 \x01(\r\x12\r\n\x05score\x18\x03 \x01(\x02\x12\x12\n\nnum_tokens\x18\x04 \x01(\r\x12\'\n\x07serving\x18\x05 \x01(\x0e2\x16.inferscale.v1.Serving\x12\x0c\n\x04text\x18\x06 \x01(\t*g\n\x07Serving\x12\x17\n\x13SERVING_UNSPECIFIED\x10\x00\x12\x14\n\x10SERVING_INJECTED\x10\x01\x12\x16\n\x12SERVING_NATIVE_HIT\x10\x02\x12\x15\n\x11SERVING_PREFILLED\x10\x03*]\n\x0bServingMode\x12\x1c\n\x18SERVING_MODE_UNSPECIFIED\x10\x00\x12\x19\n\x15SERVING_MODE_INJECTED\x10\x01\x12\x15\n\x11SERVING_MODE_TEXT\x10\x02*\x8f\x01\n\x0bEncodeState\x12\x1c\n\x18ENCODE_STATE_UNSPECIFIED\x10\x00\x12\x18\n\x14ENCODE_STATE_PENDING\x10\x01\x12\x15\n\x11ENCODE_STATE_DONE\x10\x02\x12\x17\n\x13ENCODE_STATE_FAILED\x10\x03\x12\x18\n\x14ENCODE_STATE_DROPPED\x10\x04*H\n\x04Tier\x12\x14\n\x10TIER_UNSPECIFIED\x10\x00\x12\x0c\n\x08TIER_GPU\x10\x01\x12\r\n\tTIER_HOST\x10\x02\x12\r\n\tTIER_DISK\x10\x03b\x06proto3')
_globals = globals()
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, _globals)
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'inferscale.v1.common_pb2', _globals)
if not _descriptor._USE_C_DESCRIPTORS:
    DESCRIPTOR._loaded_options = None
    _globals['_SERVING']._serialized_start = 833
    _globals['_SERVING']._serialized_end = 936
    _globals['_SERVINGMODE']._serialized_start = 938
    _globals['_SERVINGMODE']._serialized_end = 1031
    _globals['_ENCODESTATE']._serialized_start = 1034
    _globals['_ENCODESTATE']._serialized_end = 1177
    _globals['_TIER']._serialized_start = 1179
    _globals['_TIER']._serialized_end = 1251
    _globals['_SAMPLING']._serialized_start = 46
    _globals['_SAMPLING']._serialized_end = 250
    _globals['_MESSAGE']._serialized_start = 252
    _globals['_MESSAGE']._serialized_end = 292
    _globals['_USAGE']._serialized_start = 295
    _globals['_USAGE']._serialized_end = 505
    _globals['_TIMINGS']._serialized_start = 508
    _globals['_TIMINGS']._serialized_end = 689
    _globals['_SERVEDFACT']._serialized_start = 692
    _globals['_SERVEDFACT']._serialized_end = 831
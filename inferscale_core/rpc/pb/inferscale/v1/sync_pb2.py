"""Generated protocol buffer code."""
from google.protobuf import descriptor as _descriptor
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import runtime_version as _runtime_version
from google.protobuf import symbol_database as _symbol_database
from google.protobuf.internal import builder as _builder
_runtime_version.ValidateProtobufRuntimeVersion(_runtime_version.Domain.PUBLIC, 6, 31, 1, '', 'inferscale/v1/sync.proto')
_sym_db = _symbol_database.Default()
from google.protobuf import timestamp_pb2 as google_dot_protobuf_dot_timestamp__pb2
DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(b'\n\x18inferscale/v1/sync.proto\x12\rinferscale.v1\x1a\x1fgoogle/protobuf/timestamp.proto"f\n\x12ListChangesRequest\x12\x11\n\ttenant_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12\x15\n\rafter_version\x18\x03 \x01(\x04\x12\x15\n\rwith_disk_key\x18\x04 \x01(\x08"\xff\x01\n\x13ListChangesResponse\x12\x16\n\x0ememory_version\x18\x01 \x01(\x04\x12\x10\n\x08kv_epoch\x18\x02 \x01(\x04\x12(\n\x05facts\x18\x03 \x03(\x0b2\x19.inferscale.v1.FactChange\x12\x18\n\x10removed_fact_ids\x18\x04 \x03(\t\x12(\n\x05turns\x18\x05 \x03(\x0b2\x19.inferscale.v1.TurnChange\x12\x18\n\x10removed_turn_ids\x18\x06 \x03(\t\x12\x0c\n\x04last\x18\x07 \x01(\x08\x12(\n\x08disk_key\x18\x08 \x01(\x0b2\x16.inferscale.v1.DiskKey"0\n\x07DiskKey\x12\x10\n\x08kv_epoch\x18\x01 \x01(\x04\x12\x13\n\x06secret\x18\x02 \x01(\x0cB\x03\x80\x01\x01"\xc4\x01\n\nFactChange\x12\x0f\n\x07fact_id\x18\x01 \x01(\t\x12\x10\n\x08revision\x18\x02 \x01(\r\x12\x16\n\x0ememory_version\x18\x03 \x01(\x04\x12\x0c\n\x04text\x18\x04 \x01(\t\x12/\n\x0boccurred_at\x18\x05 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12\x11\n\tembedding\x18\x06 \x01(\x0c\x12\x17\n\x0fconversation_id\x18\x07 \x01(\t\x12\x10\n\x08turn_ids\x18\x08 \x03(\t"\xb0\x01\n\nTurnChange\x12\x0f\n\x07turn_id\x18\x01 \x01(\t\x12\x17\n\x0fconversation_id\x18\x02 \x01(\t\x12\x10\n\x08position\x18\x03 \x01(\x04\x12\x0f\n\x07speaker\x18\x04 \x01(\t\x12\x0c\n\x04text\x18\x05 \x01(\t\x12/\n\x0boccurred_at\x18\x06 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12\x16\n\x0ememory_version\x18\x07 \x01(\x04"L\n\x10EmbedderIdentity\x12\x13\n\x0bembedder_id\x18\x01 \x01(\t\x12\x10\n\x08revision\x18\x02 \x01(\t\x12\x11\n\tdimension\x18\x03 \x01(\r"\x87\x02\n\x11JoinWorkerRequest\x12\x11\n\tworker_id\x18\x01 \x01(\t\x12\x13\n\x0binstance_id\x18\x02 \x01(\t\x12\x0f\n\x07address\x18\x03 \x01(\t\x12\r\n\x05model\x18\x04 \x01(\t\x12\x16\n\x0emodel_revision\x18\x05 \x01(\t\x12\x0e\n\x06recipe\x18\x06 \x01(\t\x12\x13\n\x0brecipe_hash\x18\x07 \x01(\t\x121\n\x08embedder\x18\x08 \x01(\x0b2\x1f.inferscale.v1.EmbedderIdentity\x12\x10\n\x08draining\x18\t \x01(\x08\x12\x17\n\x0fmax_fact_tokens\x18\n \x01(\r\x12\x0f\n\x07renewal\x18\x0b \x01(\x08"%\n\x12JoinWorkerResponse\x12\x0f\n\x07lease_s\x18\x01 \x01(\r"(\n\x13RemoveWorkerRequest\x12\x11\n\tworker_id\x18\x01 \x01(\t"\x16\n\x14RemoveWorkerResponse2\x91\x02\n\x0bSyncService\x12V\n\x0bListChanges\x12!.inferscale.v1.ListChangesRequest\x1a".inferscale.v1.ListChangesResponse0\x01\x12Q\n\nJoinWorker\x12 .inferscale.v1.JoinWorkerRequest\x1a!.inferscale.v1.JoinWorkerResponse\x12W\n\x0cRemoveWorker\x12".inferscale.v1.RemoveWorkerRequest\x1a#.inferscale.v1.RemoveWorkerResponseb\x06proto3')
_globals = globals()
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, _globals)
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'inferscale.v1.sync_pb2', _globals)
if not _descriptor._USE_C_DESCRIPTORS:
    DESCRIPTOR._loaded_options = None
    _globals['_DISKKEY'].fields_by_name['secret']._loaded_options = None
    _globals['_DISKKEY'].fields_by_name['secret']._serialized_options = b'\x80\x01\x01'
    _globals['_LISTCHANGESREQUEST']._serialized_start = 76
    _globals['_LISTCHANGESREQUEST']._serialized_end = 178
    _globals['_LISTCHANGESRESPONSE']._serialized_start = 181
    _globals['_LISTCHANGESRESPONSE']._serialized_end = 436
    _globals['_DISKKEY']._serialized_start = 438
    _globals['_DISKKEY']._serialized_end = 486
    _globals['_FACTCHANGE']._serialized_start = 489
    _globals['_FACTCHANGE']._serialized_end = 685
    _globals['_TURNCHANGE']._serialized_start = 688
    _globals['_TURNCHANGE']._serialized_end = 864
    _globals['_EMBEDDERIDENTITY']._serialized_start = 866
    _globals['_EMBEDDERIDENTITY']._serialized_end = 942
    _globals['_JOINWORKERREQUEST']._serialized_start = 945
    _globals['_JOINWORKERREQUEST']._serialized_end = 1208
    _globals['_JOINWORKERRESPONSE']._serialized_start = 1210
    _globals['_JOINWORKERRESPONSE']._serialized_end = 1247
    _globals['_REMOVEWORKERREQUEST']._serialized_start = 1249
    _globals['_REMOVEWORKERREQUEST']._serialized_end = 1289
    _globals['_REMOVEWORKERRESPONSE']._serialized_start = 1291
    _globals['_REMOVEWORKERRESPONSE']._serialized_end = 1313
    _globals['_SYNCSERVICE']._serialized_start = 1316
    _globals['_SYNCSERVICE']._serialized_end = 1589
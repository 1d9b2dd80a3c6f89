"""Generated protocol buffer code."""
from google.protobuf import descriptor as _descriptor
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import runtime_version as _runtime_version
from google.protobuf import symbol_database as _symbol_database
from google.protobuf.internal import builder as _builder
_runtime_version.ValidateProtobufRuntimeVersion(_runtime_version.Domain.PUBLIC, 6, 31, 1, '', 'inferscale/v1/memory.proto')
_sym_db = _symbol_database.Default()
from google.protobuf import timestamp_pb2 as google_dot_protobuf_dot_timestamp__pb2
from ...inferscale.v1 import common_pb2 as inferscale_dot_v1_dot_common__pb2
DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(b'\n\x1ainferscale/v1/memory.proto\x12\rinferscale.v1\x1a\x1fgoogle/protobuf/timestamp.proto\x1a\x1ainferscale/v1/common.proto"\x81\x03\n\x06Memory\x12\x11\n\tmemory_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12\x0c\n\x04text\x18\x03 \x01(\t\x12\x10\n\x08revision\x18\x04 \x01(\r\x12\x16\n\x0ememory_version\x18\x05 \x01(\x04\x12/\n\x0boccurred_at\x18\x06 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12.\n\ncreated_at\x18\x07 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12.\n\nupdated_at\x18\x08 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12\x17\n\x0fconversation_id\x18\t \x01(\t\x12\x10\n\x08turn_ids\x18\n \x03(\t\x122\n\rencode_status\x18\x0b \x03(\x0b2\x1b.inferscale.v1.EncodeStatus\x12+\n\tresidency\x18\x0c \x03(\x0b2\x18.inferscale.v1.Residency"\xb5\x01\n\x0cEncodeStatus\x12\x16\n\x0emodel_revision\x18\x01 \x01(\t\x12\x0e\n\x06recipe\x18\x02 \x01(\t\x12)\n\x05state\x18\x03 \x01(\x0e2\x1a.inferscale.v1.EncodeState\x12\x0e\n\x06reason\x18\x04 \x01(\t\x12\x12\n\nnum_tokens\x18\x05 \x01(\r\x12.\n\nupdated_at\x18\x06 \x01(\x0b2\x1a.google.protobuf.Timestamp"i\n\tResidency\x12\x11\n\tworker_id\x18\x01 \x01(\t\x12\x16\n\x0emodel_revision\x18\x02 \x01(\t\x12\x0e\n\x06recipe\x18\x03 \x01(\t\x12!\n\x04tier\x18\x04 \x01(\x0e2\x13.inferscale.v1.Tier"u\n\tNewMemory\x12\x0c\n\x04text\x18\x01 \x01(\t\x12/\n\x0boccurred_at\x18\x02 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12\x17\n\x0fconversation_id\x18\x03 \x01(\t\x12\x10\n\x08turn_ids\x18\x04 \x03(\t"a\n\x10AddMemoryRequest\x12\x12\n\nrequest_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12(\n\x06memory\x18\x03 \x01(\x0b2\x18.inferscale.v1.NewMemory"k\n\x11AddMemoryResponse\x12%\n\x06memory\x18\x01 \x01(\x0b2\x15.inferscale.v1.Memory\x12\x16\n\x0ememory_version\x18\x02 \x01(\x04\x12\x17\n\x0falready_existed\x18\x03 \x01(\x08"j\n\x17BatchAddMemoriesRequest\x12\x12\n\nrequest_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12*\n\x08memories\x18\x03 \x03(\x0b2\x18.inferscale.v1.NewMemory"\x87\x01\n\x0eBatchAddResult\x12\'\n\x06memory\x18\x01 \x01(\x0b2\x15.inferscale.v1.MemoryH\x00\x12)\n\x05error\x18\x02 \x01(\x0b2\x18.inferscale.v1.ItemErrorH\x00\x12\x17\n\x0falready_existed\x18\x03 \x01(\x08B\x08\n\x06result"\xa4\x01\n\tItemError\x12\x0c\n\x04code\x18\x01 \x01(\t\x12\r\n\x05field\x18\x02 \x01(\t\x12\x0f\n\x07message\x18\x03 \x01(\t\x128\n\x08metadata\x18\x04 \x03(\x0b2&.inferscale.v1.ItemError.MetadataEntry\x1a/\n\rMetadataEntry\x12\x0b\n\x03key\x18\x01 \x01(\t\x12\r\n\x05value\x18\x02 \x01(\t:\x028\x01"b\n\x18BatchAddMemoriesResponse\x12.\n\x07results\x18\x01 \x03(\x0b2\x1d.inferscale.v1.BatchAddResult\x12\x16\n\x0ememory_version\x18\x02 \x01(\x04"6\n\x10GetMemoryRequest\x12\x0f\n\x07user_id\x18\x01 \x01(\t\x12\x11\n\tmemory_id\x18\x02 \x01(\t":\n\x11GetMemoryResponse\x12%\n\x06memory\x18\x01 \x01(\x0b2\x15.inferscale.v1.Memory"M\n\x13ListMemoriesRequest\x12\x0f\n\x07user_id\x18\x01 \x01(\t\x12\x11\n\tpage_size\x18\x02 \x01(\r\x12\x12\n\npage_token\x18\x03 \x01(\t"p\n\x14ListMemoriesResponse\x12\'\n\x08memories\x18\x01 \x03(\x0b2\x15.inferscale.v1.Memory\x12\x17\n\x0fnext_page_token\x18\x02 \x01(\t\x12\x16\n\x0ememory_version\x18\x03 \x01(\x04"\xa7\x01\n\x13UpdateMemoryRequest\x12\x12\n\nrequest_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12\x11\n\tmemory_id\x18\x03 \x01(\t\x12\x19\n\x11expected_revision\x18\x04 \x01(\r\x12\x0c\n\x04text\x18\x05 \x01(\t\x12/\n\x0boccurred_at\x18\x06 \x01(\x0b2\x1a.google.protobuf.Timestamp"q\n\x14UpdateMemoryResponse\x12%\n\x06memory\x18\x01 \x01(\x0b2\x15.inferscale.v1.Memory\x12\x16\n\x0ememory_version\x18\x02 \x01(\x04\x12\x1a\n\x12dependants_dropped\x18\x03 \x01(\r"d\n\x13DeleteMemoryRequest\x12\x12\n\nrequest_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12\x11\n\tmemory_id\x18\x03 \x01(\t\x12\x15\n\rpurge_sources\x18\x04 \x01(\x08"_\n\x14DeleteMemoryResponse\x12/\n\x07receipt\x18\x01 \x01(\x0b2\x1e.inferscale.v1.DeletionReceipt\x12\x16\n\x0ememory_version\x18\x02 \x01(\x04"\xca\x01\n\x0fDeletionReceipt\x12\x12\n\nreceipt_id\x18\x01 \x01(\t\x12\x11\n\tmemory_id\x18\x02 \x01(\t\x12.\n\ndeleted_at\x18\x03 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12)\n\x05lines\x18\x04 \x03(\x0b2\x1a.inferscale.v1.ReceiptLine\x12\x17\n\x0fsource_turn_ids\x18\x05 \x03(\t\x12\x1c\n\x14dependant_memory_ids\x18\x06 \x03(\t"\x99\x01\n\x0bReceiptLine\x12\x0e\n\x06holder\x18\x01 \x01(\t\x12\x11\n\tworker_id\x18\x02 \x01(\t\x12(\n\x05state\x18\x03 \x01(\x0e2\x19.inferscale.v1.PurgeState\x12\r\n\x05count\x18\x04 \x01(\r\x12.\n\nupdated_at\x18\x05 \x01(\x0b2\x1a.google.protobuf.Timestamp"@\n\x19GetDeletionReceiptRequest\x12\x0f\n\x07user_id\x18\x01 \x01(\t\x12\x12\n\nreceipt_id\x18\x02 \x01(\t"M\n\x1aGetDeletionReceiptResponse\x12/\n\x07receipt\x18\x01 \x01(\x0b2\x1e.inferscale.v1.DeletionReceipt"^\n\x15SearchMemoriesRequest\x12\x0f\n\x07user_id\x18\x01 \x01(\t\x12\r\n\x05query\x18\x02 \x01(\t\x12\t\n\x01k\x18\x03 \x01(\r\x12\x1a\n\x12min_memory_version\x18\x04 \x01(\x04"^\n\x16SearchMemoriesResponse\x12,\n\x07results\x18\x01 \x03(\x0b2\x1b.inferscale.v1.ScoredMemory\x12\x16\n\x0ememory_version\x18\x02 \x01(\x04"D\n\x0cScoredMemory\x12%\n\x06memory\x18\x01 \x01(\x0b2\x15.inferscale.v1.Memory\x12\r\n\x05score\x18\x02 \x01(\x02"g\n\x04Turn\x12\x0f\n\x07turn_id\x18\x01 \x01(\t\x12\x0f\n\x07speaker\x18\x02 \x01(\t\x12\x0c\n\x04text\x18\x03 \x01(\t\x12/\n\x0boccurred_at\x18\x04 \x01(\x0b2\x1a.google.protobuf.Timestamp"v\n\x12AppendTurnsRequest\x12\x12\n\nrequest_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12\x17\n\x0fconversation_id\x18\x03 \x01(\t\x12"\n\x05turns\x18\x04 \x03(\x0b2\x13.inferscale.v1.Turn"?\n\x13AppendTurnsResponse\x12\x10\n\x08turn_ids\x18\x01 \x03(\t\x12\x16\n\x0ememory_version\x18\x02 \x01(\x04"d\n\x12DeleteTurnsRequest\x12\x12\n\nrequest_id\x18\x01 \x01(\t\x12\x0f\n\x07user_id\x18\x02 \x01(\t\x12\x17\n\x0fconversation_id\x18\x03 \x01(\t\x12\x10\n\x08turn_ids\x18\x04 \x03(\t"`\n\x13DeleteTurnsResponse\x12\x15\n\rturns_deleted\x18\x01 \x01(\r\x12\x1a\n\x12dependants_dropped\x18\x02 \x01(\r\x12\x16\n\x0ememory_version\x18\x03 \x01(\x04*Z\n\nPurgeState\x12\x1b\n\x17PURGE_STATE_UNSPECIFIED\x10\x00\x12\x16\n\x12PURGE_STATE_PURGED\x10\x01\x12\x17\n\x13PURGE_STATE_PENDING\x10\x022\x95\x07\n\rMemoryService\x12N\n\tAddMemory\x12\x1f.inferscale.v1.AddMemoryRequest\x1a .inferscale.v1.AddMemoryResponse\x12c\n\x10BatchAddMemories\x12&.inferscale.v1.BatchAddMemoriesRequest\x1a\'.inferscale.v1.BatchAddMemoriesResponse\x12N\n\tGetMemory\x12\x1f.inferscale.v1.GetMemoryRequest\x1a .inferscale.v1.GetMemoryResponse\x12W\n\x0cListMemories\x12".inferscale.v1.ListMemoriesRequest\x1a#.inferscale.v1.ListMemoriesResponse\x12W\n\x0cUpdateMemory\x12".inferscale.v1.UpdateMemoryRequest\x1a#.inferscale.v1.UpdateMemoryResponse\x12W\n\x0cDeleteMemory\x12".inferscale.v1.DeleteMemoryRequest\x1a#.inferscale.v1.DeleteMemoryResponse\x12i\n\x12GetDeletionReceipt\x12(.inferscale.v1.GetDeletionReceiptRequest\x1a).inferscale.v1.GetDeletionReceiptResponse\x12]\n\x0eSearchMemories\x12$.inferscale.v1.SearchMemoriesRequest\x1a%.inferscale.v1.SearchMemoriesResponse\x12T\n\x0bAppendTurns\x12!.inferscale.v1.AppendTurnsRequest\x1a".inferscale.v1.AppendTurnsResponse\x12T\n\x0bDeleteTurns\x12!.inferscale.v1.DeleteTurnsRequest\x1a".inferscale.v1.DeleteTurnsResponseb\x06proto3')
_globals = globals()
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, _globals)
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'inferscale.v1.memory_pb2', _globals)
if not _descriptor._USE_C_DESCRIPTORS:
    DESCRIPTOR._loaded_options = None
    _globals['_ITEMERROR_METADATAENTRY']._loaded_options = None
    _globals['_ITEMERROR_METADATAENTRY']._serialized_options = b'8\x01'
    _globals['_PURGESTATE']._serialized_start = 3676
    _globals['_PURGESTATE']._serialized_end = 3766
    _globals['_MEMORY']._serialized_start = 107
    _globals['_MEMORY']._serialized_end = 492
    _globals['_ENCODESTATUS']._serialized_start = 495
    _globals['_ENCODESTATUS']._serialized_end = 676
    _globals['_RESIDENCY']._serialized_start = 678
    _globals['_RESIDENCY']._serialized_end = 783
    _globals['_NEWMEMORY']._serialized_start = 785
    _globals['_NEWMEMORY']._serialized_end = 902
    _globals['_ADDMEMORYREQUEST']._serialized_start = 904
    _globals['_ADDMEMORYREQUEST']._serialized_end = 1001
    _globals['_ADDMEMORYRESPONSE']._serialized_start = 1003
    _globals['_ADDMEMORYRESPONSE']._serialized_end = 1110
    _globals['_BATCHADDMEMORIESREQUEST']._serialized_start = 1112
    _globals['_BATCHADDMEMORIESREQUEST']._serialized_end = 1218
    _globals['_BATCHADDRESULT']._serialized_start = 1221
    _globals['_BATCHADDRESULT']._serialized_end = 1356
    _globals['_ITEMERROR']._serialized_start = 1359
    _globals['_ITEMERROR']._serialized_end = 1523
    _globals['_ITEMERROR_METADATAENTRY']._serialized_start = 1476
    _globals['_ITEMERROR_METADATAENTRY']._serialized_end = 1523
    _globals['_BATCHADDMEMORIESRESPONSE']._serialized_start = 1525
    _globals['_BATCHADDMEMORIESRESPONSE']._serialized_end = 1623
    _globals['_GETMEMORYREQUEST']._serialized_start = 1625
    _globals['_GETMEMORYREQUEST']._serialized_end = 1679
    _globals['_GETMEMORYRESPONSE']._serialized_start = 1681
    _globals['_GETMEMORYRESPONSE']._serialized_end = 1739
    _globals['_LISTMEMORIESREQUEST']._serialized_start = 1741
    _globals['_LISTMEMORIESREQUEST']._serialized_end = 1818
    _globals['_LISTMEMORIESRESPONSE']._serialized_start = 1820
    _globals['_LISTMEMORIESRESPONSE']._serialized_end = 1932
    _globals['_UPDATEMEMORYREQUEST']._serialized_start = 1935
    _globals['_UPDATEMEMORYREQUEST']._serialized_end = 2102
    _globals['_UPDATEMEMORYRESPONSE']._serialized_start = 2104
    _globals['_UPDATEMEMORYRESPONSE']._serialized_end = 2217
    _globals['_DELETEMEMORYREQUEST']._serialized_start = 2219
    _globals['_DELETEMEMORYREQUEST']._serialized_end = 2319
    _globals['_DELETEMEMORYRESPONSE']._serialized_start = 2321
    _globals['_DELETEMEMORYRESPONSE']._serialized_end = 2416
    _globals['_DELETIONRECEIPT']._serialized_start = 2419
    _globals['_DELETIONRECEIPT']._serialized_end = 2621
    _globals['_RECEIPTLINE']._serialized_start = 2624
    _globals['_RECEIPTLINE']._serialized_end = 2777
    _globals['_GETDELETIONRECEIPTREQUEST']._serialized_start = 2779
    _globals['_GETDELETIONRECEIPTREQUEST']._serialized_end = 2843
    _globals['_GETDELETIONRECEIPTRESPONSE']._serialized_start = 2845
    _globals['_GETDELETIONRECEIPTRESPONSE']._serialized_end = 2922
    _globals['_SEARCHMEMORIESREQUEST']._serialized_start = 2924
    _globals['_SEARCHMEMORIESREQUEST']._serialized_end = 3018
    _globals['_SEARCHMEMORIESRESPONSE']._serialized_start = 3020
    _globals['_SEARCHMEMORIESRESPONSE']._serialized_end = 3114
    _globals['_SCOREDMEMORY']._serialized_start = 3116
    _globals['_SCOREDMEMORY']._serialized_end = 3184
    _globals['_TURN']._serialized_start = 3186
    _globals['_TURN']._serialized_end = 3289
    _globals['_APPENDTURNSREQUEST']._serialized_start = 3291
    _globals['_APPENDTURNSREQUEST']._serialized_end = 3409
    _globals['_APPENDTURNSRESPONSE']._serialized_start = 3411
    _globals['_APPENDTURNSRESPONSE']._serialized_end = 3474
    _globals['_DELETETURNSREQUEST']._serialized_start = 3476
    _globals['_DELETETURNSREQUEST']._serialized_end = 3576
    _globals['_DELETETURNSRESPONSE']._serialized_start = 3578
    _globals['_DELETETURNSRESPONSE']._serialized_end = 3674
    _globals['_MEMORYSERVICE']._serialized_start = 3769
    _globals['_MEMORYSERVICE']._serialized_end = 4686
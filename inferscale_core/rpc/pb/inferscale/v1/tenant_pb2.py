"""Generated protocol buffer code."""
from google.protobuf import descriptor as _descriptor
from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import runtime_version as _runtime_version
from google.protobuf import symbol_database as _symbol_database
from google.protobuf.internal import builder as _builder
_runtime_version.ValidateProtobufRuntimeVersion(_runtime_version.Domain.PUBLIC, 6, 31, 1, '', 'inferscale/v1/tenant.proto')
_sym_db = _symbol_database.Default()
from google.protobuf import timestamp_pb2 as google_dot_protobuf_dot_timestamp__pb2
DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(b'\n\x1ainferscale/v1/tenant.proto\x12\rinferscale.v1\x1a\x1fgoogle/protobuf/timestamp.proto"\x98\x01\n\x06Tenant\x12\x11\n\ttenant_id\x18\x01 \x01(\t\x12\x14\n\x0cdisplay_name\x18\x02 \x01(\t\x12\x0e\n\x06models\x18\x03 \x03(\t\x12%\n\x06quotas\x18\x04 \x01(\x0b2\x15.inferscale.v1.Quotas\x12.\n\ncreated_at\x18\x05 \x01(\x0b2\x1a.google.protobuf.Timestamp"7\n\x06Quotas\x12\x11\n\tmax_facts\x18\x01 \x01(\x04\x12\x1a\n\x12max_facts_per_user\x18\x02 \x01(\x04"\x87\x01\n\x06ApiKey\x12\x0e\n\x06key_id\x18\x01 \x01(\t\x12\r\n\x05label\x18\x02 \x01(\t\x12.\n\ncreated_at\x18\x03 \x01(\x0b2\x1a.google.protobuf.Timestamp\x12.\n\nrevoked_at\x18\x04 \x01(\x0b2\x1a.google.protobuf.Timestamp"u\n\x13CreateTenantRequest\x12\x11\n\ttenant_id\x18\x01 \x01(\t\x12\x14\n\x0cdisplay_name\x18\x02 \x01(\t\x12\x0e\n\x06models\x18\x03 \x03(\t\x12%\n\x06quotas\x18\x04 \x01(\x0b2\x15.inferscale.v1.Quotas"^\n\x14CreateTenantResponse\x12%\n\x06tenant\x18\x01 \x01(\x0b2\x15.inferscale.v1.Tenant\x12\x0f\n\x07api_key\x18\x02 \x01(\t\x12\x0e\n\x06key_id\x18\x03 \x01(\t"%\n\x10GetTenantRequest\x12\x11\n\ttenant_id\x18\x01 \x01(\t"M\n\x11GetTenantResponse\x12%\n\x06tenant\x18\x01 \x01(\x0b2\x15.inferscale.v1.Tenant\x12\x11\n\tnum_facts\x18\x02 \x01(\x04"L\n\x10SetQuotasRequest\x12\x11\n\ttenant_id\x18\x01 \x01(\t\x12%\n\x06quotas\x18\x02 \x01(\x0b2\x15.inferscale.v1.Quotas":\n\x11SetQuotasResponse\x12%\n\x06tenant\x18\x01 \x01(\x0b2\x15.inferscale.v1.Tenant"7\n\x13CreateApiKeyRequest\x12\r\n\x05label\x18\x01 \x01(\t\x12\x11\n\ttenant_id\x18\x02 \x01(\t"J\n\x14CreateApiKeyResponse\x12"\n\x03key\x18\x01 \x01(\x0b2\x15.inferscale.v1.ApiKey\x12\x0e\n\x06secret\x18\x02 \x01(\t"\'\n\x12ListApiKeysRequest\x12\x11\n\ttenant_id\x18\x01 \x01(\t":\n\x13ListApiKeysResponse\x12#\n\x04keys\x18\x01 \x03(\x0b2\x15.inferscale.v1.ApiKey"8\n\x13RevokeApiKeyRequest\x12\x0e\n\x06key_id\x18\x01 \x01(\t\x12\x11\n\ttenant_id\x18\x02 \x01(\t":\n\x14RevokeApiKeyResponse\x12"\n\x03key\x18\x01 \x01(\x0b2\x15.inferscale.v1.ApiKey2\x90\x04\n\rTenantService\x12W\n\x0cCreateTenant\x12".inferscale.v1.CreateTenantRequest\x1a#.inferscale.v1.CreateTenantResponse\x12N\n\tGetTenant\x12\x1f.inferscale.v1.GetTenantRequest\x1a .inferscale.v1.GetTenantResponse\x12N\n\tSetQuotas\x12\x1f.inferscale.v1.SetQuotasRequest\x1a .inferscale.v1.SetQuotasResponse\x12W\n\x0cCreateApiKey\x12".inferscale.v1.CreateApiKeyRequest\x1a#.inferscale.v1.CreateApiKeyResponse\x12T\n\x0bListApiKeys\x12!.inferscale.v1.ListApiKeysRequest\x1a".inferscale.v1.ListApiKeysResponse\x12W\n\x0cRevokeApiKey\x12".inferscale.v1.RevokeApiKeyRequest\x1a#.inferscale.v1.RevokeApiKeyResponseb\x06proto3')
_globals = globals()
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, _globals)
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, 'inferscale.v1.tenant_pb2', _globals)
if not _descriptor._USE_C_DESCRIPTORS:
    DESCRIPTOR._loaded_options = None
    _globals['_TENANT']._serialized_start = 79
    _globals['_TENANT']._serialized_end = 231
    _globals['_QUOTAS']._serialized_start = 233
    _globals['_QUOTAS']._serialized_end = 288
    _globals['_APIKEY']._serialized_start = 291
    _globals['_APIKEY']._serialized_end = 426
    _globals['_CREATETENANTREQUEST']._serialized_start = 428
    _globals['_CREATETENANTREQUEST']._serialized_end = 545
    _globals['_CREATETENANTRESPONSE']._serialized_start = 547
    _globals['_CREATETENANTRESPONSE']._serialized_end = 641
    _globals['_GETTENANTREQUEST']._serialized_start = 643
    _globals['_GETTENANTREQUEST']._serialized_end = 680
    _globals['_GETTENANTRESPONSE']._serialized_start = 682
    _globals['_GETTENANTRESPONSE']._serialized_end = 759
    _globals['_SETQUOTASREQUEST']._serialized_start = 761
    _globals['_SETQUOTASREQUEST']._serialized_end = 837
    _globals['_SETQUOTASRESPONSE']._serialized_start = 839
    _globals['_SETQUOTASRESPONSE']._serialized_end = 897
    _globals['_CREATEAPIKEYREQUEST']._serialized_start = 899
    _globals['_CREATEAPIKEYREQUEST']._serialized_end = 954
    _globals['_CREATEAPIKEYRESPONSE']._serialized_start = 956
    _globals['_CREATEAPIKEYRESPONSE']._serialized_end = 1030
    _globals['_LISTAPIKEYSREQUEST']._serialized_start = 1032
    _globals['_LISTAPIKEYSREQUEST']._serialized_end = 1071
    _globals['_LISTAPIKEYSRESPONSE']._serialized_start = 1073
    _globals['_LISTAPIKEYSRESPONSE']._serialized_end = 1131
    _globals['_REVOKEAPIKEYREQUEST']._serialized_start = 1133
    _globals['_REVOKEAPIKEYREQUEST']._serialized_end = 1189
    _globals['_REVOKEAPIKEYRESPONSE']._serialized_start = 1191
    _globals['_REVOKEAPIKEYRESPONSE']._serialized_end = 1249
    _globals['_TENANTSERVICE']._serialized_start = 1252
    _globals['_TENANTSERVICE']._serialized_end = 1780
import datetime
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
DESCRIPTOR: _descriptor.FileDescriptor

class Tenant(_message.Message):
    __slots__ = ('tenant_id', 'display_name', 'models', 'quotas', 'created_at')
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    display_name: str
    models: _containers.RepeatedScalarFieldContainer[str]
    quotas: Quotas
    created_at: _timestamp_pb2.Timestamp

    def __init__(self, tenant_id: _Optional[str]=..., display_name: _Optional[str]=..., models: _Optional[_Iterable[str]]=..., quotas: _Optional[_Union[Quotas, _Mapping]]=..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=...) -> None:
        ...

class Quotas(_message.Message):
    __slots__ = ('max_facts', 'max_facts_per_user')
    MAX_FACTS_FIELD_NUMBER: _ClassVar[int]
    MAX_FACTS_PER_USER_FIELD_NUMBER: _ClassVar[int]
    max_facts: int
    max_facts_per_user: int

    def __init__(self, max_facts: _Optional[int]=..., max_facts_per_user: _Optional[int]=...) -> None:
        ...

class ApiKey(_message.Message):
    __slots__ = ('key_id', 'label', 'created_at', 'revoked_at')
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    label: str
    created_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp

    def __init__(self, key_id: _Optional[str]=..., label: _Optional[str]=..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., revoked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=...) -> None:
        ...

class CreateTenantRequest(_message.Message):
    __slots__ = ('tenant_id', 'display_name', 'models', 'quotas')
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    display_name: str
    models: _containers.RepeatedScalarFieldContainer[str]
    quotas: Quotas

    def __init__(self, tenant_id: _Optional[str]=..., display_name: _Optional[str]=..., models: _Optional[_Iterable[str]]=..., quotas: _Optional[_Union[Quotas, _Mapping]]=...) -> None:
        ...

class CreateTenantResponse(_message.Message):
    __slots__ = ('tenant', 'api_key', 'key_id')
    TENANT_FIELD_NUMBER: _ClassVar[int]
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    api_key: str
    key_id: str

    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]]=..., api_key: _Optional[str]=..., key_id: _Optional[str]=...) -> None:
        ...

class GetTenantRequest(_message.Message):
    __slots__ = ('tenant_id',)
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str

    def __init__(self, tenant_id: _Optional[str]=...) -> None:
        ...

class GetTenantResponse(_message.Message):
    __slots__ = ('tenant', 'num_facts')
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NUM_FACTS_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    num_facts: int

    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]]=..., num_facts: _Optional[int]=...) -> None:
        ...

class SetQuotasRequest(_message.Message):
    __slots__ = ('tenant_id', 'quotas')
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    quotas: Quotas

    def __init__(self, tenant_id: _Optional[str]=..., quotas: _Optional[_Union[Quotas, _Mapping]]=...) -> None:
        ...

class SetQuotasResponse(_message.Message):
    __slots__ = ('tenant',)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant

    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]]=...) -> None:
        ...

class CreateApiKeyRequest(_message.Message):
    __slots__ = ('label', 'tenant_id')
    LABEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    label: str
    tenant_id: str

    def __init__(self, label: _Optional[str]=..., tenant_id: _Optional[str]=...) -> None:
        ...

class CreateApiKeyResponse(_message.Message):
    __slots__ = ('key', 'secret')
    KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    key: ApiKey
    secret: str

    def __init__(self, key: _Optional[_Union[ApiKey, _Mapping]]=..., secret: _Optional[str]=...) -> None:
        ...

class ListApiKeysRequest(_message.Message):
    __slots__ = ('tenant_id',)
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str

    def __init__(self, tenant_id: _Optional[str]=...) -> None:
        ...

class ListApiKeysResponse(_message.Message):
    __slots__ = ('keys',)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[ApiKey]

    def __init__(self, keys: _Optional[_Iterable[_Union[ApiKey, _Mapping]]]=...) -> None:
        ...

class RevokeApiKeyRequest(_message.Message):
    __slots__ = ('key_id', 'tenant_id')
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    key_id: str
    tenant_id: str

    def __init__(self, key_id: _Optional[str]=..., tenant_id: _Optional[str]=...) -> None:
        ...

class RevokeApiKeyResponse(_message.Message):
    __slots__ = ('key',)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: ApiKey

    def __init__(self, key: _Optional[_Union[ApiKey, _Mapping]]=...) -> None:
        ...
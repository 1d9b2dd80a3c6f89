"""The command for grpcurl that the demo prints, carried out as grpcurl does it.

grpcurl asks the server what it speaks (reflection, v1 first and v1alpha where that is unknown),
turns the JSON of `-d` into the method's request, and prints the responses as JSON. It is no Python
program and not installed here, so its steps are taken with gRPC's own reflection client.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from examples.demo import call_examples
from examples.story import load_story
from tests.control.harness import Control, Tenant

FACT = "Mira's sister Freja will marry Paolo in Bologna on 21 June 2025."


@dataclass(frozen=True)
class Command:
    """`grpcurl -plaintext -H HEADER -d BODY ADDRESS SERVICE/METHOD`."""

    header: tuple[str, str]
    body: str
    address: str
    service: str
    method: str


def printed_command(address: str, api_key: str) -> Command:
    """What a shell makes of the command that the demo prints."""
    text = call_examples(address, api_key, load_story()).partition("With grpcurl:")[2]
    words = shlex.split(text.replace("\\\n", " "))
    program, plaintext, dash_h, header, dash_d, body, target, name = words
    assert (program, plaintext, dash_h, dash_d) == ("grpcurl", "-plaintext", "-H", "-d")
    key, _, value = header.partition(": ")
    service, _, method = name.partition("/")
    return Command((key, value), body, target, service, method)


def carried_out(command: Command) -> list[dict[str, Any]]:
    """The responses, as grpcurl prints them. Knows of the API what the server tells."""
    with grpc.insecure_channel(command.address) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        service = pool.FindServiceByName(command.service)
        method = service.FindMethodByName(command.method)
        request = json_format.Parse(command.body, GetMessageClass(method.input_type)())
        assert not method.client_streaming
        assert method.server_streaming
        call = channel.unary_stream(
            f"/{command.service}/{command.method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        responses = call(request, metadata=[command.header], timeout=20)
        return [json.loads(json_format.MessageToJson(response)) for response in responses]


async def test_the_printed_command_streams_the_answer(control: Control, tenant: Tenant) -> None:
    story = load_story()
    await control.worker(tenant.model)
    await tenant.client.add_memory(story.user_id, FACT[:31])
    command = printed_command(control.address, tenant.api_key)
    responses = await asyncio.to_thread(carried_out, command)
    assert [next(iter(response)) for response in responses] == ["retrieved", "delta", "done"]
    assert responses[1]["delta"]["text"] == FACT[:31] + "\n"


async def test_the_printed_command_with_another_key_is_refused(
    control: Control, tenant: Tenant
) -> None:
    command = printed_command(control.address, tenant.api_key + "x")
    with pytest.raises(grpc.RpcError) as refused:
        await asyncio.to_thread(carried_out, command)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_reflection_of_the_newer_version_is_unknown_so_that_grpcurl_asks_the_older(
    control: Control,
) -> None:
    """Source: protoreflect's grpcreflect, NewClientAuto: it tries v1alpha after UNIMPLEMENTED."""

    def ask(method: str) -> list[Any]:
        with grpc.insecure_channel(control.address) as channel:
            call = channel.stream_stream(
                method,
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            return list(call(iter([request]), timeout=20))

    with pytest.raises(grpc.RpcError) as unknown:
        await asyncio.to_thread(ask, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    older = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    assert await asyncio.to_thread(ask, older)

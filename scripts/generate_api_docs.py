"""Write docs/api.md from the comments of `proto`, or compare it with --check."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

from inferscale_core import errors
from inferscale_core.rpc.auth import allowed_callers
from inferscale_core.rpc.identity import InternalPrincipal, OperatorPrincipal, TenantPrincipal
from inferscale_core.rpc.status import DOMAIN, statuses

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
PAGE = ROOT / "docs" / "api.md"

PUBLIC = ("memory", "chat", "tenant")
INTERNAL = ("sync", "worker")

HEAD = f"""\
# gRPC API

Written by `scripts/generate_api_docs.py` from `proto/inferscale/v1`; `make generate` writes it
again and `make check` compares it.

**Credential.** Every call carries metadata `authorization: Bearer <secret>`. The tenant is the one
that the credential belongs to. Health (`grpc.health.v1`) and reflection need none.

**Deadlines.** Give every call one. A call that comes without gets 30 s, a stream 600 s.

**Repeating.** Every mutation of a user's memory takes a `request_id`: repeating it after a lost
answer does it once. Repeat on `UNAVAILABLE`, after a pause that grows; the Python client does so by
itself. A chat may be repeated until its first `delta`.

**Reading your own writes.** A mutation returns the user's `memory_version`; given to a search or a
chat as `min_memory_version`, that change is seen there.

**Traces.** W3C `traceparent` in the metadata continues the caller's trace.

**Limits.** Messages up to 32 MiB. A client may ping as often as
`INFERSCALE_CONTROL__MIN_PING_INTERVAL_S` says.

## Errors

A failed call carries `google.rpc.Status` in `grpc-status-details-bin`: an `ErrorInfo` with domain
`{DOMAIN}`, the stable code as `reason` and the error's ids, revisions or quota as `metadata`; for
`invalid_input` the field, and a `BadRequest` that names it too and says in words what is wrong,
with the limit. A path counts from the request: `memories[1].text`. An unknown user is no error:
what reads or chats finds no facts. The Python client raises the class of the same meaning from
`inferscale_core.errors`.
"""

CALLERS = {
    TenantPrincipal: "a tenant's key",
    OperatorPrincipal: "the operator's token",
    InternalPrincipal: "the internal token",
}

TYPES = {
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_UINT32: "uint32",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
}

# A line of the tree in the docstring: class, meaning, status.
MEANINGS = dict(re.findall(r"[├└]── (\w+) +(.+?) {2,}[A-Z_]+$", errors.__doc__ or "", re.MULTILINE))

# Field numbers in descriptor.proto, of which the paths of comments are made.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE = 4, 5, 6
SERVICE_METHOD, MESSAGE_FIELD, ENUM_VALUE = 2, 2, 2


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/api.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when stale")
    page = "\n".join(render(read_descriptors())) + "\n"
    if not parser.parse_args().check:
        PAGE.write_text(page)
        return 0
    if not PAGE.exists() or PAGE.read_text() != page:
        print("docs/api.md is not what proto gives; run make generate")
        return 1
    return 0


def read_descriptors() -> dict[str, FileDescriptorProto]:
    """By file name without folder and suffix, with comments."""
    sources = sorted(str(path) for path in PROTO.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors.bin"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={out}", *sources], check=True)
        files = FileDescriptorSet.FromString(out.read_bytes()).file
    return {Path(file.name).stem: file for file in files}


def render(files: dict[str, FileDescriptorProto]) -> Iterator[str]:
    yield HEAD
    yield from _errors()
    for name in PUBLIC:
        yield from _service_page(files[name])
    yield "\n## Shared messages"
    yield from _messages(files["common"])
    yield "\n# Between control and workers\n"
    yield "Not for callers from outside; here for whoever debugs or replaces a part."
    for name in INTERNAL:
        yield from _service_page(files[name])


def _errors() -> Iterator[str]:
    yield "| code | gRPC status | class | meaning |"
    yield "|---|---|---|---|"
    for error, status in statuses().items():
        meaning = MEANINGS.get(error.__name__, "anything else: our own fault")
        yield f"| `{error.code}` | `{status.name}` | `{error.__name__}` | {meaning} |"


def _service_page(file: FileDescriptorProto) -> Iterator[str]:
    (service,) = file.service
    comments = _comments(file)
    yield f"\n## {service.name}\n"
    yield comments[FILE_SERVICE, 0]
    for index, method in enumerate(service.method):
        yield f"\n### {method.name}\n"
        yield f"{_signature(method)}\n"
        yield comments[FILE_SERVICE, 0, SERVICE_METHOD, index]
        callers = allowed_callers(f"{file.package}.{service.name}/{method.name}")
        yield f"\nNeeds {' or '.join(CALLERS[caller] for caller in callers)}."
    yield f"\n### Messages of {service.name}"
    yield from _messages(file)


def _signature(method: MethodDescriptorProto) -> str:
    stream = "stream of " if method.server_streaming else ""
    return f"{_link(method.input_type)} → {stream}{_link(method.output_type)}"


def _messages(file: FileDescriptorProto) -> Iterator[str]:
    comments = _comments(file)
    for index, message in enumerate(file.message_type):
        yield from _message(message, (FILE_MESSAGE, index), comments)
    for index, enum in enumerate(file.enum_type):
        yield from _enum(enum, (FILE_ENUM, index), comments)


def _message(
    message: DescriptorProto, path: tuple[int, ...], comments: dict[tuple[int, ...], str]
) -> Iterator[str]:
    yield f"\n#### {message.name}\n"
    if path in comments:
        yield f"{comments[path]}\n"
    if not message.field:
        yield "No fields."
        return
    yield "| field | type | |"
    yield "|---|---|---|"
    for index, field in enumerate(message.field):
        comment = _cell(comments[(*path, MESSAGE_FIELD, index)])
        yield f"| `{field.name}` | {_type(message, field)} | {comment} |"


def _enum(
    enum: EnumDescriptorProto, path: tuple[int, ...], comments: dict[tuple[int, ...], str]
) -> Iterator[str]:
    yield f"\n#### {enum.name}\n"
    yield f"{comments[path]}\n"
    yield "| value | number | |"
    yield "|---|---|---|"
    for index, value in enumerate(enum.value):
        comment = _cell(comments.get((*path, ENUM_VALUE, index), ""))
        yield f"| `{value.name}` | {value.number} | {comment} |"


def _type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    entry = next((one for one in message.nested_type if _is_entry(one, field)), None)
    if entry is not None:
        return f"map of {TYPES[entry.field[0].type]} to {TYPES[entry.field[1].type]}"
    name = TYPES.get(field.type) or _link(field.type_name)
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {name}"
    if field.proto3_optional:
        return f"optional {name}"
    if field.HasField("oneof_index"):
        return f"{name}, one of `{message.oneof_decl[field.oneof_index].name}`"
    return name


def _is_entry(nested: DescriptorProto, field: FieldDescriptorProto) -> bool:
    """A map's entries are a message that protoc declares inside the map's own."""
    return nested.options.map_entry and field.type_name.endswith(f".{nested.name}")


def _link(full_name: str) -> str:
    name = full_name.rsplit(".", 1)[-1]
    if full_name.startswith(".google."):
        return full_name.removeprefix(".")
    return f"[{name}](#{name.lower()})"


def _comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """By path in the descriptor; paragraphs kept, lines joined."""
    return {
        tuple(location.path): "\n\n".join(
            " ".join(paragraph.split()) for paragraph in location.leading_comments.split("\n\n")
        )
        for location in file.source_code_info.location
        if location.leading_comments
    }


def _cell(comment: str) -> str:
    return comment.replace("\n\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())

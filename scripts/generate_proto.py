"""Write `inferscale_core/rpc/pb` from `proto`, or check that it is what `proto` gives.

    python scripts/generate_proto.py            write
    python scripts/generate_proto.py --check    exit 1 and name the files that differ

Messages come from protoc, with relative imports from protoletariat. The typed stubs of the services
are written here, for asyncio, since protoc has none.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
OUT = ROOT / "inferscale_core" / "rpc" / "pb"
PACKAGE_DOC = '"""Generated from `proto` by scripts/generate_proto.py. Not edited by hand."""\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when stale")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "pb"
        generate(fresh)
        if arguments.check:
            return report(stale_files(fresh, OUT))
        shutil.rmtree(OUT, ignore_errors=True)
        shutil.copytree(fresh, OUT)
    return 0


def generate(out: Path) -> None:
    """Fill `out` with packages of messages, service stubs and their types."""
    out.mkdir(parents=True)
    descriptors = out.parent / "descriptors.bin"
    _run_protoc(out, descriptors)
    _make_imports_relative(out, descriptors)
    files = FileDescriptorSet.FromString(descriptors.read_bytes()).file
    for file in files:
        if not file.name.startswith("google/"):
            _write_service_types(out, file)
    for path in out.rglob("__init__.py"):
        path.write_text(PACKAGE_DOC)


def stale_files(fresh: Path, committed: Path) -> list[str]:
    """Paths, relative to both folders, that are missing, left over or different."""
    names = {path.relative_to(folder) for folder in (fresh, committed) for path in _sources(folder)}
    return sorted(str(name) for name in names if not _same(fresh / name, committed / name))


def report(stale: list[str]) -> int:
    for name in stale:
        print(
            f"inferscale_core/rpc/pb/{name} is not what proto gives; run scripts/generate_proto.py"
        )
    return 1 if stale else 0


def _run_protoc(out: Path, descriptors: Path) -> None:
    sources = sorted(str(path) for path in PROTO.rglob("*.proto"))
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}"),
        *(f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"),
        *(f"--descriptor_set_out={descriptors}", "--include_imports"),
    ]
    subprocess.run([*command, *sources], check=True)


def _make_imports_relative(out: Path, descriptors: Path) -> None:
    """protoletariat rewrites the modules; the type files name siblings by their full path."""
    protol = [sys.executable, "-m", "protoletariat", "--in-place", "--create-package"]
    subprocess.run([*protol, "-o", str(out), "raw", str(descriptors)], check=True)
    for empty in out.rglob("__init__.pyi"):
        empty.unlink()
    for path in out.rglob("*_pb2.pyi"):
        text = path.read_text()
        path.write_text(re.sub(r"^from inferscale\.v1 import ", "from . import ", text, flags=re.M))


def _write_service_types(out: Path, file: FileDescriptorProto) -> None:
    module = out / file.name.replace(".proto", "_pb2_grpc.py")
    if not file.service:
        module.unlink()
        return
    lines = [
        "from collections.abc import AsyncIterator, Awaitable",
        "",
        "import grpc.aio",
        "",
        f"from . import {Path(file.name).stem}_pb2 as pb",
    ]
    for service in file.service:
        lines += ["", *_stub(service), "", *_servicer(service), "", *_registration(service)]
    module.with_suffix(".pyi").write_text("\n".join(lines) + "\n")


def _stub(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"class {service.name}Stub:"
    yield "    def __init__(self, channel: grpc.aio.Channel) -> None: ..."
    for method in service.method:
        kind = "UnaryStream" if method.server_streaming else "UnaryUnary"
        yield f"    {method.name}: grpc.aio.{kind}MultiCallable[{_messages(method)}]"


def _servicer(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"class {service.name}Servicer:"
    for method in service.method:
        returns = "AsyncIterator" if method.server_streaming else "Awaitable"
        yield f"    def {method.name}("
        yield "        self,"
        yield f"        request: {_message(method.input_type)},"
        yield f"        context: grpc.aio.ServicerContext[{_messages(method)}],"
        yield f"    ) -> {returns}[{_message(method.output_type)}]: ..."


def _registration(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"def add_{service.name}Servicer_to_server("
    yield f"    servicer: {service.name}Servicer, server: grpc.aio.Server"
    yield ") -> None: ..."


def _messages(method: MethodDescriptorProto) -> str:
    assert not method.client_streaming, "no service takes a stream of requests"
    return f"{_message(method.input_type)}, {_message(method.output_type)}"


def _message(full_name: str) -> str:
    """Every request and response is declared in its service's own file."""
    return f"pb.{full_name.rsplit('.', 1)[-1]}"


def _sources(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.py*") if path.suffix in {".py", ".pyi"})


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and filecmp.cmp(one, other, shallow=False)


if __name__ == "__main__":
    sys.exit(main())

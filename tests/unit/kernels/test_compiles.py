"""The kernels compile where there is no GPU: the interpreter takes more than the compiler does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import inferscale_core.kernels.capture.launch as capture_launch
import inferscale_core.kernels.compose.launch as compose_launch
import inferscale_core.kernels.expand.launch as expand_launch
import inferscale_core.kernels.rank.launch as rank_launch
from inferscale_core.kernels.expand.kernel import expand_kernel
from inferscale_core.kernels.paged import KernelLayer, Strides, as_list, group_layers
from inferscale_core.kernels.rank.kernel import rank_kernel
from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena
from inferscale_core.memory.recipes import Storage
from inferscale_core.vllm_connector.copies import Copy, pack

HOPPER = GPUTarget("cuda", 90, 32)
SHAPE, BLOCK = LayerShape(2, 64), 16
TYPES = {
    torch.bfloat16: "*bf16",
    torch.uint8: "*u8",
    torch.float32: "*fp32",
    torch.int64: "*i64",
    torch.int32: "*i32",
}


@pytest.fixture(autouse=True)
def _says_whether_to_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton warns where it is left open."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


class Compiling:
    """In place of a kernel: compiles it for what it is launched with, and launches nothing."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.arg_names = kernel.arg_names
        self.programs: list[Any] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._compile

    def _compile(self, *arguments: Any, num_warps: int, **constants: Any) -> None:
        names = self._kernel.arg_names
        given = dict(zip(names, arguments, strict=False))
        signature = {n: _type(given[n]) if n in given else "constexpr" for n in names}
        constexprs = {(names.index(name),): value for name, value in constants.items()}
        source = ASTSource(self._kernel, signature, constexprs=constexprs)
        options = {"num_warps": num_warps}
        self.programs.append(triton.compile(source, target=HOPPER, options=options))


def _type(value: Any) -> str:
    return TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"


@pytest.mark.parametrize("launch", [capture_launch, compose_launch], ids=["capture", "compose"])
@pytest.mark.parametrize(
    ("storage", "dtype"),
    [*itertools.product(Storage, [torch.bfloat16]), (Storage.CACHE, torch.uint8)],
)
def test_what_moves_chunks_compiles(
    launch: Any, storage: Storage, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "compose" if launch is compose_launch else "capture"
    compiling = Compiling(getattr(launch, f"{name}_kernel"))
    monkeypatch.setattr(launch, f"{name}_kernel", compiling)
    arena = Arena(8, row_layout([SHAPE], dtype, storage), torch.device("cpu"))
    cache = torch.zeros(4, BLOCK, SHAPE.num_kv_heads, 2 * SHAPE.head_dim, dtype=dtype)
    view = cache.permute(0, 2, 1, 3)
    block, head, token, dim = view.stride()
    angles = torch.zeros(8, SHAPE.head_dim // 2)
    layer = KernelLayer(
        0,
        view,
        Strides(block, head, token, dim, SHAPE.head_dim),
        RotaryTable(angles.cos(), angles.sin(), SHAPE.head_dim, True),
        torch.zeros(SHAPE.num_kv_heads, SHAPE.head_dim),
        (1.0, 1.0) if dtype == torch.uint8 else None,
    )
    groups = group_layers([layer], arena.layout, BLOCK)
    getattr(launch, name)(arena.rows, groups, as_list(torch.zeros(4, 1, dtype=torch.int64)))
    assert [bool(program.asm["cubin"]) for program in compiling.programs] == [True]


def test_what_tells_tokens_apart_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling = Compiling(expand_kernel)
    monkeypatch.setattr(expand_launch, "expand_kernel", compiling)
    piece = np.array([0, 1, 0], dtype=np.int32).tobytes()
    copies = [Copy("", 0, 1, piece, ([1], [2]), BLOCK)]
    packed, shape = pack(copies)
    expand_launch.expand(torch.frombuffer(bytearray(packed), dtype=torch.int32), shape, BLOCK)
    assert [bool(program.asm["cubin"]) for program in compiling.programs] == [True]


def test_what_finds_the_nearest_facts_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling = Compiling(rank_kernel)
    monkeypatch.setattr(rank_launch, "rank_kernel", compiling)
    vectors = torch.eye(2, 384)
    rank_launch.Rank(torch.device("cpu"), max_queries=2)(vectors, [vectors, vectors], 1)
    assert [bool(program.asm["cubin"]) for program in compiling.programs] == [True]

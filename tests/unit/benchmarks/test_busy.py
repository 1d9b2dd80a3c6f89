"""Kernels that wait for another rank are told from those that work."""

from __future__ import annotations

import pytest

from benchmarks.gpu.busy import OF_SEVERAL_RANKS


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, ...)",
        "void two_shot_all_reduce_kernel_inplace<2, 8>(c10::BFloat16**, ...)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_an_operation_of_several_ranks_is_left_out(name: str) -> None:
    assert OF_SEVERAL_RANKS.search(name)


@pytest.mark.parametrize(
    "name",
    [
        "compose_kernel",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0",
        "void at::native::reduce_kernel<512, 1, ...>(...)",
        "nvjet_tst_128x8_64x12_2x1_v_bz_TNT",
        "Memcpy HtoD (Pinned -> Device)",
    ],
)
def test_a_rank_s_own_work_counts(name: str) -> None:
    assert not OF_SEVERAL_RANKS.search(name)

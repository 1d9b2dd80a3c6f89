"""How many facts a gigabyte of arena holds: `python -m benchmarks.facts_per_gb`.

Counted, not timed: from the row layout that the service uses, for facts of 28 tokens, about the
mean of LoCoMo's observations with their dates, and pages of the default size. GB is 10^9 bytes.
With tensor parallelism the figures are of one rank, whose arena has its part of every fact.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from benchmarks.gpu.shapes import SHAPES
from benchmarks.rows import GPU_RESULTS, make_rows, replace_rows
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.memory.recipes import Storage
from inferscale_core.vllm_connector.config import DEFAULT_PAGE_TOKENS

FACT_TOKENS = 28
RANKS = (1, 2)
SHOWN = ("model", "ranks", "dtype", "bytes_per_fact", "facts_per_gb")


def layers_of(model: str, ranks: int) -> list[LayerShape]:
    """Of one rank. A KV head is never divided: ranks that outnumber the heads have copies of one.

    Source: vLLM 0.26 and 0.32, config/model.py (ModelConfig.get_num_kv_heads).
    """
    shape = SHAPES[model]
    head_dim = shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"]
    num_kv_heads = max(1, shape["num_key_value_heads"] // ranks)
    return [LayerShape(num_kv_heads, head_dim)] * shape["num_hidden_layers"]


def figures() -> Iterator[dict[str, Any]]:
    for model, ranks in product(SHAPES, RANKS):
        for storage in Storage:
            row_bytes = row_layout(layers_of(model, ranks), torch.bfloat16, storage).row_bytes
            pages = -(-FACT_TOKENS // DEFAULT_PAGE_TOKENS)
            fact_bytes = pages * DEFAULT_PAGE_TOKENS * row_bytes
            yield {
                "kind": "facts_per_gb",
                "model": model,
                "ranks": ranks,
                "dtype": "bf16" if storage is Storage.CACHE else storage.value,
                "bytes_per_token": row_bytes,
                "bytes_per_fact": fact_bytes,
                "facts_per_gb": int(1e9 // fact_bytes),
            }


def main() -> None:
    rows = make_rows("facts_per_gb", figures())
    for row in rows:
        print({name: row[name] for name in SHOWN})
    replace_rows(rows, GPU_RESULTS)


if __name__ == "__main__":
    main()

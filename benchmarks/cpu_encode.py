"""How fast a user's facts are encoded, against the engine's own prefill, and what a fact takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import grpc.aio

from benchmarks.rows import Row, make_rows
from examples.asking import ask
from examples.loading import store_story, wait_until_encoded
from examples.progress import Steps
from examples.stack import Stack
from examples.story import Story
from inferscale_core.client import InferScale, ServingMode
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2
from inferscale_core.rpc.pb.inferscale.v1.worker_pb2_grpc import WorkerServiceStub


def measure_encode(
    client: InferScale, story: Story, stack: Stack, steps: Steps, about: Mapping[str, str]
) -> list[Row]:
    """Encodes the story for `story.user_id`, who must be new."""
    before = _cache_status(stack)
    num_facts = store_story(client, story, story.user_id)
    with steps.step("Encode every fact") as step:
        wait_until_encoded(client, story.user_id, num_facts, stack, step)
        encode_s = step.elapsed_s
    after = _cache_status(stack)
    tokens = _fact_tokens(client, story.user_id)
    with steps.step("Prefill as text, k = 50") as step:
        prefill_rate = _prefill_tokens_per_s(client, story)
        step.result(f"{prefill_rate:.0f} tokens a second")
    chunks = after.resident_chunks - before.resident_chunks
    figures = {
        "facts": num_facts,
        "encode_s": round(encode_s, 3),
        "facts_per_s": round(num_facts / encode_s, 3),
        "tokens_forwarded": tokens,
        "forwarded_tokens_per_s": round(tokens / encode_s, 2),
        "prefill_tokens_per_s": round(prefill_rate, 2),
        "share_of_prefill": round(tokens / encode_s / prefill_rate, 4),
        "tokens_per_fact": round(tokens / num_facts, 2),
        "bytes_per_fact": round((after.resident_bytes - before.resident_bytes) / chunks),
    }
    return make_rows("encode", [figures], **about)


def _fact_tokens(client: InferScale, user_id: str) -> int:
    memories = client.list_memories(user_id, page_size=500).memories
    return sum(memory.encode_status[0].num_tokens for memory in memories)


def _prefill_tokens_per_s(client: InferScale, story: Story) -> float:
    question = story.wide_question.text
    asked = ask(client, story.user_id, question, k=50, mode=ServingMode.TEXT, max_tokens=1)
    return asked.usage.prefilled_tokens / (asked.timings.prefill_ms / 1e3)


def _cache_status(stack: Stack) -> worker_pb2.CacheStatusResponse:
    return asyncio.run(_ask_worker(stack))


async def _ask_worker(stack: Stack) -> worker_pb2.CacheStatusResponse:
    credential = [("authorization", f"Bearer {stack.internal_token}")]
    async with grpc.aio.insecure_channel(stack.worker_address) as channel:
        stub = WorkerServiceStub(channel)
        request = worker_pb2.CacheStatusRequest()
        return await stub.CacheStatus(request, metadata=credential, timeout=10)

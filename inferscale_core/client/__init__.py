"""Typed clients of the service. They need gRPC and nothing of the service itself.

async with AsyncInferScale("localhost:7700", api_key) as client:
    await client.add_memory("robin", "Robin is allergic to peanuts.")
    async for event in client.chat("robin", "Can I have a peanut cookie?"):
        if isinstance(event, Delta):
            print(event.text, end="")
"""

from inferscale_core.client.async_client import AsyncInferScale
from inferscale_core.client.chat import (
    ChatAnswer,
    ChatEvent,
    ChatMessage,
    Delta,
    Done,
    Retrieved,
    Sampling,
    Scored,
    Scoring,
    Served,
    ServedFact,
    Serving,
    ServingMode,
    Timings,
    Usage,
)
from inferscale_core.client.chat_stream import ChatStream
from inferscale_core.client.connection import ClientOptions
from inferscale_core.client.operator_client import AsyncOperator
from inferscale_core.client.records import (
    DeletionReceipt,
    EncodeState,
    Memory,
    NewMemory,
    PurgeState,
    Quotas,
    Residency,
    Tier,
    Turn,
)
from inferscale_core.client.retries import RetryPolicy
from inferscale_core.client.sync_client import InferScale, SyncChatStream
from inferscale_core.client.sync_operator import Operator
from inferscale_core.rpc.channel import ChannelOptions
from inferscale_core.rpc.tls import channel_credentials

__all__ = [
    "AsyncInferScale",
    "AsyncOperator",
    "ChannelOptions",
    "ChatAnswer",
    "ChatEvent",
    "ChatMessage",
    "ChatStream",
    "ClientOptions",
    "DeletionReceipt",
    "Delta",
    "Done",
    "EncodeState",
    "InferScale",
    "Memory",
    "NewMemory",
    "Operator",
    "PurgeState",
    "Quotas",
    "Residency",
    "Retrieved",
    "RetryPolicy",
    "Sampling",
    "Scored",
    "Scoring",
    "Served",
    "ServedFact",
    "Serving",
    "ServingMode",
    "SyncChatStream",
    "Tier",
    "Timings",
    "Turn",
    "Usage",
    "channel_credentials",
]

"""Identifiers, as distinct types so that one cannot be passed for another.

A `TenantId`, `FactId`, `TurnId` or `ConversationId` is a ULID-like or caller-chosen string;
`UserId` is always the caller's own. None of them carries a fact's text.
"""

from __future__ import annotations

from typing import NewType

TenantId = NewType("TenantId", str)
UserId = NewType("UserId", str)
FactId = NewType("FactId", str)
ConversationId = NewType("ConversationId", str)
TurnId = NewType("TurnId", str)
RequestId = NewType("RequestId", str)
WorkerId = NewType("WorkerId", str)

ModelRevision = NewType("ModelRevision", str)
"""A version of weights: name and content digest, for example `qwen2.5-coder-1.5b@3f2a91c04d7e`."""

RecipeHash = NewType("RecipeHash", str)
"""Hash of every field of a recipe that changes what a chunk holds (16 hex digits)."""

ChunkKey = NewType("ChunkKey", str)
"""`tenant/user-digest/chunk-digest`. See `memory.canonical` for what the digest covers."""

UserScope = NewType("UserScope", str)
"""`tenant/user-digest`: the first two parts of the keys of all chunks of one user."""

"""What a worker is, as it states it to control and in its answers."""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.ids import ModelRevision, WorkerId
from inferscale_core.memory.recipes import Recipe
from inferscale_core.memory.workers import EmbedderIdentity
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """instance_id: new at each start of the process, whose arena is empty."""

    worker_id: WorkerId
    instance_id: str
    address: str
    model: str
    model_revision: ModelRevision
    recipe: Recipe
    embedder: EmbedderIdentity
    max_fact_tokens: int

    def to_join_request(self) -> sync_pb2.JoinWorkerRequest:
        return sync_pb2.JoinWorkerRequest(
            worker_id=self.worker_id,
            instance_id=self.instance_id,
            address=self.address,
            model=self.model,
            model_revision=self.model_revision,
            recipe=self.recipe.name,
            recipe_hash=self.recipe.hash,
            embedder=sync_pb2.EmbedderIdentity(
                embedder_id=self.embedder.embedder_id,
                revision=self.embedder.revision,
                dimension=self.embedder.dimension,
            ),
            max_fact_tokens=self.max_fact_tokens,
        )

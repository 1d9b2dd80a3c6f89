"""AddMemory and SearchMemories over gRPC, beside the SQL that they cannot do without.

The bare side is one connection of psycopg to the same Postgres, as the same role under the same row
security, with prepared statements. Call and bare SQL take turns. No worker runs, so nothing is
encoded meanwhile.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median
from typing import Any

import psycopg
from psycopg import Connection

from benchmarks.rows import Row, make_rows
from examples.progress import Steps
from examples.stack import Stack
from inferscale_core.client import InferScale, NewMemory, Operator
from inferscale_core.embedding import Embedder, load_embedder
from inferscale_core.settings import Settings
from inferscale_core.store.embedded import conninfo

TENANT, USER, MODEL = "store-benchmark", "someone", "a-model-nobody-serves"
NUM_FACTS = 1000
BATCH = 250
REPEATS = 200
K = 20

_SET_TENANT = "SELECT set_config('inferscale.tenant_id', %(tenant)s, true)"

# What AddMemory has to leave behind: the replay record, the version, the fact with its embedding,
# what is to be encoded, the job, the tenant's count and the audit row. The job waits for a time
# that does not come, so that nobody takes it.
ADD = (
    """INSERT INTO requests (tenant_id, request_id, operation, content_hash, outcome, created_at)
    VALUES (%(tenant)s, %(request)s, 'bare', %(hash)s, '{}', now())""",
    """UPDATE users SET memory_version = memory_version + 1, num_facts = num_facts + 1
    WHERE tenant_id = %(tenant)s AND user_id = %(user)s""",
    """INSERT INTO facts (tenant_id, fact_id, revision, user_id, text, turn_ids, memory_version,
        is_live, content_hash, created_at, updated_at)
    SELECT tenant_id, %(fact)s, 1, user_id, %(text)s, '{}', memory_version, true, %(hash)s,
        now(), now()
    FROM users WHERE tenant_id = %(tenant)s AND user_id = %(user)s""",
    """INSERT INTO fact_embeddings (tenant_id, fact_id, revision, user_id, embedding)
    VALUES (%(tenant)s, %(fact)s, 1, %(user)s, %(vector)s)""",
    """INSERT INTO encodings (tenant_id, user_id, fact_id, revision, model, state, updated_at,
        num_tokens, model_revision, recipe, recipe_hash, reason, chunk_digest)
    VALUES (%(tenant)s, %(user)s, %(fact)s, 1, %(model)s, 'pending', now(), 0, '', '', '', '', '')
    """,
    """INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, scheduled_at)
    VALUES ('bare', 'bare', %(user)s, %(args)s, '2999-01-01')""",
    "UPDATE tenants SET num_facts = num_facts + 1 WHERE tenant_id = %(tenant)s",
    """INSERT INTO audit (tenant_id, at, actor, action, user_id, request_id, ids)
    VALUES (%(tenant)s, now(), 'bare', 'memory.add', %(user)s, %(request)s, %(args)s)""",
)

# Exact, as SearchMemories is for a user of this size: the inner part may not use the index.
SEARCH = """WITH candidates AS MATERIALIZED (
        SELECT fact_id, embedding <=> %(vector)s::vector AS distance FROM fact_embeddings
        WHERE tenant_id = %(tenant)s AND user_id = %(user)s
    ), best AS (SELECT * FROM candidates ORDER BY distance, fact_id LIMIT %(k)s)
    SELECT facts.*, distance FROM best JOIN facts USING (fact_id)
    WHERE facts.tenant_id = %(tenant)s AND is_live ORDER BY distance, fact_id"""


def measure_store(stack: Stack, steps: Steps) -> list[Row]:
    with Operator(stack.address, stack.operator_token) as operator:
        tenant = operator.create_tenant(TENANT, [MODEL])
    embedder = load_embedder(Settings().embedder)
    with (
        InferScale(stack.address, tenant.api_key) as client,
        psycopg.connect(conninfo(stack.service_url), prepare_threshold=1) as connection,
    ):
        with steps.step(f"Store {NUM_FACTS} facts") as step:
            _fill(client, step.say)
            step.result("in batches")
        with steps.step("AddMemory against bare SQL"):
            add = _measure_add(client, connection, embedder)
        with steps.step("SearchMemories against bare SQL"):
            search = _measure_search(client, connection, embedder)
    about = {"postgres": _postgres_version(stack)}
    return make_rows("store_ratio", [add, search], **about)


def _fill(client: InferScale, say: Callable[[str, float], None]) -> None:
    texts = [_statement(number) for number in range(NUM_FACTS)]
    for begin in range(0, NUM_FACTS, BATCH):
        say(f"{begin} of {NUM_FACTS}", begin / NUM_FACTS)
        added = client.batch_add_memories(
            USER, [NewMemory(text) for text in texts[begin : begin + BATCH]]
        )
        assert all(item.memory for item in added.items), "every statement is stored"


def _measure_add(
    client: InferScale, connection: Connection[Any], embedder: Embedder
) -> dict[str, object]:
    calls, sqls, embeds = [], [], []
    for number in range(NUM_FACTS, NUM_FACTS + REPEATS):
        text = _statement(number)
        calls.append(_timed_ms(partial(client.add_memory, USER, text)))
        bare_text = f"{text} (bare)"
        embeds.append(_timed_ms(partial(embedder.embed, [bare_text])))
        parameters = {
            **_common(embedder, bare_text),
            "request": uuid.uuid4().hex,
            "hash": uuid.uuid4().hex,
            "fact": uuid.uuid4().hex,
            "text": bare_text,
            "model": MODEL,
            "args": json.dumps({"user_id": USER}),
        }
        sqls.append(_timed_ms(partial(_transaction, connection, ADD, parameters)))
    return _figures("AddMemory", calls, sqls, embeds)


def _measure_search(
    client: InferScale, connection: Connection[Any], embedder: Embedder
) -> dict[str, object]:
    calls, sqls, embeds = [], [], []
    for number in range(REPEATS):
        query = f"Where was number {number * 7 % NUM_FACTS} last year?"
        calls.append(_timed_ms(partial(client.search_memories, USER, query, k=K)))
        embeds.append(_timed_ms(partial(embedder.embed, [query])))
        parameters = {**_common(embedder, query), "k": K}
        sqls.append(_timed_ms(partial(_transaction, connection, (SEARCH,), parameters)))
    return _figures("SearchMemories", calls, sqls, embeds)


def _common(embedder: Embedder, text: str) -> dict[str, object]:
    vector = embedder.embed([text])[0]
    literal = "[" + ",".join(f"{value:.7g}" for value in vector.tolist()) + "]"
    return {"tenant": TENANT, "user": USER, "vector": literal}


def _transaction(
    connection: Connection[Any], statements: Iterable[str], parameters: dict[str, object]
) -> None:
    with connection.transaction():
        connection.execute(_SET_TENANT, parameters)
        for statement in statements:
            cursor = connection.execute(statement, parameters)
            if cursor.description:
                cursor.fetchall()


def _figures(
    operation: str, calls: list[float], sqls: list[float], embeds: list[float]
) -> dict[str, object]:
    call, sql, embed = median(calls), median(sqls), median(embeds)
    return {
        "operation": operation,
        "repeats": REPEATS,
        "facts_of_the_user": NUM_FACTS,
        "call_ms": round(call, 3),
        "sql_ms": round(sql, 3),
        "embed_ms": round(embed, 3),
        "ratio": round(call / sql, 2),
        "ratio_without_embedding": round((call - embed) / sql, 2),
    }


def _timed_ms(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


def _statement(number: int) -> str:
    place = ("Leeds", "Hull", "Bologna", "Oslo", "Porto", "Graz", "Ghent")[number % 7]
    thing = ("bridge", "garden", "library", "harbour", "market")[number % 5]
    return f"Number {number} saw the {thing} of {place} in week {number % 52 + 1} of last year."


def _postgres_version(stack: Stack) -> str:
    with psycopg.connect(conninfo(stack.service_url)) as connection:
        return str(connection.info.server_version // 10_000)

"""The first schema: tenants, users, facts, turns, encode states, receipts, workers.

Row security is enabled and forced on every tenant's table at once, so that no later step can
forget it. The policy reads `inferscale.tenant_id`, which a transaction sets for itself alone; where
it was never set the comparison is with null or the empty string, and no row is seen or written.
"""

from alembic import context, op

revision = "20261129_1725"
down_revision = None

# The largest dimension that each type can carry in an HNSW index (pgvector 0.8).
MAX_INDEXED_VECTOR = 2_000
MAX_INDEXED_HALFVEC = 4_000

TENANT_TABLES = (
    "tenants",
    "api_keys",
    "users",
    "facts",
    "fact_embeddings",
    "conversations",
    "turns",
    "removals",
    "encodings",
    "chunk_facts",
    "chunk_turns",
    "requests",
    "deletion_receipts",
    "deletion_lines",
    "holders",
    "audit",
)

TABLES = """
CREATE TABLE tenants (
    tenant_id text COLLATE "C" NOT NULL,
    display_name text NOT NULL,
    models text[] COLLATE "C" NOT NULL,
    max_facts bigint NOT NULL,
    max_facts_per_user bigint NOT NULL,
    num_facts bigint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenants_id_not_empty CHECK (tenant_id <> '')
);

CREATE TABLE api_keys (
    tenant_id text COLLATE "C" NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    label text NOT NULL,
    secret_hash text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    revoked_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_keys_secret_hash_key UNIQUE (secret_hash),
    CONSTRAINT api_keys_tenant_fkey FOREIGN KEY (tenant_id)
        REFERENCES tenants (tenant_id)
);

CREATE TABLE users (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    memory_version bigint DEFAULT 0 NOT NULL,
    kv_epoch bigint DEFAULT 0 NOT NULL,
    num_facts bigint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT users_pkey PRIMARY KEY (tenant_id, user_id),
    CONSTRAINT users_tenant_fkey FOREIGN KEY (tenant_id)
        REFERENCES tenants (tenant_id)
);

CREATE TABLE facts (
    tenant_id text COLLATE "C" NOT NULL,
    fact_id text COLLATE "C" NOT NULL,
    revision integer NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    text text NOT NULL,
    occurred_at timestamptz,
    conversation_id text COLLATE "C",
    turn_ids text[] COLLATE "C" NOT NULL,
    memory_version bigint NOT NULL,
    is_live boolean NOT NULL,
    content_hash text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT facts_pkey PRIMARY KEY (tenant_id, fact_id, revision),
    CONSTRAINT facts_user_fkey FOREIGN KEY (tenant_id, user_id)
        REFERENCES users (tenant_id, user_id)
);
CREATE UNIQUE INDEX facts_live_content_key
    ON facts (tenant_id, user_id, content_hash) WHERE is_live;
CREATE UNIQUE INDEX facts_live_key ON facts (tenant_id, fact_id) WHERE is_live;
CREATE UNIQUE INDEX facts_live_version_key
    ON facts (tenant_id, user_id, memory_version) WHERE is_live;

CREATE TABLE fact_embeddings (
    tenant_id text COLLATE "C" NOT NULL,
    fact_id text COLLATE "C" NOT NULL,
    revision integer NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    embedding vector({dimension}) NOT NULL,
    CONSTRAINT fact_embeddings_pkey PRIMARY KEY (tenant_id, fact_id),
    CONSTRAINT fact_embeddings_fact_fkey FOREIGN KEY (tenant_id, fact_id, revision)
        REFERENCES facts (tenant_id, fact_id, revision) ON DELETE CASCADE
);
CREATE INDEX fact_embeddings_user_idx ON fact_embeddings (tenant_id, user_id);

CREATE TABLE conversations (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    next_position bigint NOT NULL,
    CONSTRAINT conversations_pkey PRIMARY KEY (tenant_id, user_id, conversation_id),
    CONSTRAINT conversations_user_fkey FOREIGN KEY (tenant_id, user_id)
        REFERENCES users (tenant_id, user_id)
);

CREATE TABLE turns (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    speaker text NOT NULL,
    text text NOT NULL,
    occurred_at timestamptz,
    memory_version bigint NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT turns_pkey PRIMARY KEY (tenant_id, user_id, turn_id),
    CONSTRAINT turns_conversation_fkey FOREIGN KEY (tenant_id, user_id, conversation_id)
        REFERENCES conversations (tenant_id, user_id, conversation_id),
    CONSTRAINT turns_position_key UNIQUE (tenant_id, user_id, conversation_id, position)
);
CREATE UNIQUE INDEX turns_version_key ON turns (tenant_id, user_id, memory_version);

CREATE TABLE removals (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    memory_version bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    item_id text COLLATE "C" NOT NULL,
    removed_at timestamptz NOT NULL,
    CONSTRAINT removals_pkey PRIMARY KEY (tenant_id, user_id, memory_version),
    CONSTRAINT removals_user_fkey FOREIGN KEY (tenant_id, user_id)
        REFERENCES users (tenant_id, user_id)
);
CREATE INDEX removals_item_idx ON removals (tenant_id, user_id, item_id);

CREATE TABLE encodings (
    tenant_id text COLLATE "C" NOT NULL,
    encoding_id bigint GENERATED ALWAYS AS IDENTITY,
    user_id text COLLATE "C" NOT NULL,
    fact_id text COLLATE "C" NOT NULL,
    revision integer NOT NULL,
    model text COLLATE "C" NOT NULL,
    model_revision text COLLATE "C" NOT NULL,
    recipe text COLLATE "C" NOT NULL,
    recipe_hash text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    chunk_digest text COLLATE "C" NOT NULL,
    num_tokens integer NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT encodings_pkey PRIMARY KEY (tenant_id, encoding_id),
    CONSTRAINT encodings_target_key UNIQUE
        (tenant_id, fact_id, revision, model, model_revision, recipe_hash),
    CONSTRAINT encodings_fact_fkey FOREIGN KEY (tenant_id, fact_id, revision)
        REFERENCES facts (tenant_id, fact_id, revision) ON DELETE CASCADE
);
CREATE INDEX encodings_user_idx ON encodings (tenant_id, user_id, state);

CREATE TABLE chunk_facts (
    tenant_id text COLLATE "C" NOT NULL,
    encoding_id bigint NOT NULL,
    prefix_fact_id text COLLATE "C" NOT NULL,
    prefix_revision integer NOT NULL,
    CONSTRAINT chunk_facts_pkey PRIMARY KEY (tenant_id, encoding_id, prefix_fact_id),
    CONSTRAINT chunk_facts_encoding_fkey FOREIGN KEY (tenant_id, encoding_id)
        REFERENCES encodings (tenant_id, encoding_id) ON DELETE CASCADE
);
CREATE INDEX chunk_facts_prefix_idx ON chunk_facts (tenant_id, prefix_fact_id);

CREATE TABLE chunk_turns (
    tenant_id text COLLATE "C" NOT NULL,
    encoding_id bigint NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    CONSTRAINT chunk_turns_pkey PRIMARY KEY (tenant_id, encoding_id, turn_id),
    CONSTRAINT chunk_turns_encoding_fkey FOREIGN KEY (tenant_id, encoding_id)
        REFERENCES encodings (tenant_id, encoding_id) ON DELETE CASCADE
);
CREATE INDEX chunk_turns_turn_idx ON chunk_turns (tenant_id, turn_id);

CREATE TABLE requests (
    tenant_id text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    content_hash text COLLATE "C" NOT NULL,
    outcome jsonb,
    created_at timestamptz NOT NULL,
    CONSTRAINT requests_pkey PRIMARY KEY (tenant_id, request_id),
    CONSTRAINT requests_tenant_fkey FOREIGN KEY (tenant_id)
        REFERENCES tenants (tenant_id)
);

CREATE TABLE deletion_receipts (
    tenant_id text COLLATE "C" NOT NULL,
    receipt_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    fact_id text COLLATE "C" NOT NULL,
    deleted_at timestamptz NOT NULL,
    source_turn_ids text[] COLLATE "C" NOT NULL,
    dependant_fact_ids text[] COLLATE "C" NOT NULL,
    CONSTRAINT deletion_receipts_pkey PRIMARY KEY (tenant_id, receipt_id),
    CONSTRAINT deletion_receipts_user_fkey FOREIGN KEY (tenant_id, user_id)
        REFERENCES users (tenant_id, user_id)
);

CREATE TABLE deletion_lines (
    tenant_id text COLLATE "C" NOT NULL,
    receipt_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    holder text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT deletion_lines_pkey PRIMARY KEY (tenant_id, receipt_id, worker_id, holder),
    CONSTRAINT deletion_lines_receipt_fkey FOREIGN KEY (tenant_id, receipt_id)
        REFERENCES deletion_receipts (tenant_id, receipt_id)
);
CREATE INDEX deletion_lines_pending_idx
    ON deletion_lines (worker_id) WHERE state = 'pending';

CREATE TABLE holders (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL,
    CONSTRAINT holders_pkey PRIMARY KEY (tenant_id, user_id, worker_id),
    CONSTRAINT holders_user_fkey FOREIGN KEY (tenant_id, user_id)
        REFERENCES users (tenant_id, user_id)
);
CREATE INDEX holders_worker_idx ON holders (worker_id);

CREATE TABLE audit (
    tenant_id text COLLATE "C" NOT NULL,
    audit_id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL,
    actor text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    ids jsonb NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (tenant_id, audit_id),
    CONSTRAINT audit_tenant_fkey FOREIGN KEY (tenant_id)
        REFERENCES tenants (tenant_id)
);

CREATE TABLE workers (
    worker_id text COLLATE "C" NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    address text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    model_revision text COLLATE "C" NOT NULL,
    recipe text COLLATE "C" NOT NULL,
    recipe_hash text COLLATE "C" NOT NULL,
    embedder_id text COLLATE "C" NOT NULL,
    embedder_revision text COLLATE "C" NOT NULL,
    embedder_dimension integer NOT NULL,
    draining boolean NOT NULL,
    max_fact_tokens integer NOT NULL,
    joined_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (worker_id)
);
CREATE INDEX workers_model_idx ON workers (model);
"""

ROW_SECURITY = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY {table}_tenant ON {table}
    USING (tenant_id = current_setting('inferscale.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('inferscale.tenant_id', true));
"""


def upgrade() -> None:
    dimension = int(context.config.attributes["embedding_dimension"])
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    run("CREATE EXTENSION IF NOT EXISTS vector")
    run(TABLES.replace("{dimension}", str(dimension)))
    if dimension <= MAX_INDEXED_HALFVEC:
        run(embedding_index(dimension))
    for table in TENANT_TABLES:
        run(ROW_SECURITY.replace("{table}", table))


def embedding_index(dimension: int) -> str:
    """Above 4,000 dimensions nothing can be indexed, and every search is exact."""
    column = "embedding vector_cosine_ops"
    if dimension > MAX_INDEXED_VECTOR:
        column = f"(embedding::halfvec({dimension})) halfvec_cosine_ops"
    return f"CREATE INDEX fact_embeddings_hnsw_idx ON fact_embeddings USING hnsw ({column})"

"""The keys that workers seal their chunks on disk with: one for each user, of the present KV epoch.

The table is unlogged. What it holds can be made again (a disk tier whose key is gone is encoded
anew), and a key that was destroyed must not live on in the write-ahead log, in a replica or in a
base backup, none of which ever sees an unlogged table. A trigger destroys the key, so that it holds
for whatever raises the epoch, also for a replica that still runs the code of before.
"""

from alembic import op

revision = "20261129_2030"
down_revision = "20261129_1740"

TABLE = """
CREATE UNLOGGED TABLE disk_keys (
    tenant_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    kv_epoch bigint NOT NULL,
    secret bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT disk_keys_pkey PRIMARY KEY (tenant_id, user_id),
    CONSTRAINT disk_keys_user_fkey FOREIGN KEY (tenant_id, user_id)
        REFERENCES users (tenant_id, user_id),
    CONSTRAINT disk_keys_secret_length CHECK (octet_length(secret) = 32)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

ALTER TABLE disk_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE disk_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY disk_keys_tenant ON disk_keys
    USING (tenant_id = current_setting('inferscale.tenant_id', true))
    WITH CHECK (tenant_id = current_setting('inferscale.tenant_id', true));

CREATE FUNCTION inferscale_destroy_disk_key()
    RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM public.disk_keys k
    WHERE k.tenant_id = NEW.tenant_id AND k.user_id = NEW.user_id;
    RETURN NULL;
END
$$;

CREATE TRIGGER users_destroy_disk_key AFTER UPDATE OF kv_epoch ON users
    FOR EACH ROW WHEN (NEW.kv_epoch <> OLD.kv_epoch)
    EXECUTE FUNCTION inferscale_destroy_disk_key();
"""


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    run(TABLE)

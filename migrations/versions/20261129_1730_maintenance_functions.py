"""The three questions that no single tenant can ask, as functions of the schema's owner.

Everything else that the services do is done for one named tenant, operators' calls included. What
is left: whose key is this; which users does a worker that has just started serve; what ends when a
worker is gone. Each has one narrow function that runs as the owner. Row security is forced on the
owner too, so the owner gets a policy on the tables that these functions touch, and on no other:
not even the owner reads a fact or a turn across tenants.
"""

from alembic import op

revision = "20261129_1730"
down_revision = "20261129_1725"

FUNCTIONS = """
CREATE POLICY api_keys_maintenance ON api_keys FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY tenants_maintenance ON tenants FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY users_maintenance ON users FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY deletion_lines_maintenance ON deletion_lines TO CURRENT_USER
    USING (true) WITH CHECK (true);
CREATE POLICY holders_maintenance ON holders TO CURRENT_USER USING (true) WITH CHECK (true);

CREATE FUNCTION inferscale_find_api_key(wanted_hash text)
    RETURNS TABLE (tenant_id text, key_id text, label text, created_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT k.tenant_id, k.key_id, k.label, k.created_at
    FROM public.api_keys k
    WHERE k.secret_hash = wanted_hash AND k.revoked_at IS NULL
$$;

CREATE FUNCTION inferscale_users_of_model(
    wanted_model text, after_tenant text, after_user text, max_users integer
)
    RETURNS TABLE (tenant_id text, user_id text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT u.tenant_id, u.user_id
    FROM public.users u
    JOIN public.tenants t ON t.tenant_id = u.tenant_id
    WHERE wanted_model = ANY (t.models)
      AND u.num_facts > 0
      AND (u.tenant_id, u.user_id) > (after_tenant COLLATE "C", after_user COLLATE "C")
    ORDER BY u.tenant_id, u.user_id
    LIMIT max_users
$$;

CREATE FUNCTION inferscale_end_worker(gone_worker text)
    RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM public.holders WHERE worker_id = gone_worker;
    WITH ended AS (
        UPDATE public.deletion_lines SET state = 'purged', updated_at = now()
        WHERE worker_id = gone_worker AND state = 'pending'
        RETURNING 1
    )
    SELECT count(*) FROM ended
$$;

REVOKE EXECUTE ON FUNCTION inferscale_find_api_key(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION inferscale_users_of_model(text, text, text, integer) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION inferscale_end_worker(text) FROM PUBLIC;
"""


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    run(FUNCTIONS)

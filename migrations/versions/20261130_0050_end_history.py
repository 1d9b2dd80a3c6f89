"""What may be removed with time: request ids, ids of what is gone, and the audit trail.

Of all tenants at once, so by a function of the schema's owner, who gets a policy on these three
tables; none holds text of a fact. Its bounds hold for whoever calls it.

The id of something that is gone is what a worker's copy of the user learns of it by. It is kept
until every worker's process has started after it went, an hour to spare: such a process has fetched
each user since. And it outlives the requests that name it, so that a replay can say what became of
the fact.
"""

from alembic import op

revision = "20261130_0050"
down_revision = "20261129_2155"

FUNCTION = """
CREATE POLICY requests_maintenance ON requests TO CURRENT_USER USING (true);
CREATE POLICY removals_maintenance ON removals TO CURRENT_USER USING (true);
CREATE POLICY audit_maintenance ON audit TO CURRENT_USER USING (true);

CREATE FUNCTION inferscale_end_history(history_days integer, audit_days integer, max_rows integer)
    RETURNS TABLE (requests bigint, removals bigint, audit bigint)
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH ended_requests AS (
        DELETE FROM public.requests WHERE ctid = ANY (ARRAY(
            SELECT r.ctid FROM public.requests r
            WHERE history_days > 0 AND r.created_at < now() - make_interval(days => history_days)
            LIMIT max_rows FOR UPDATE SKIP LOCKED
        )) RETURNING 1
    ), ended_removals AS (
        DELETE FROM public.removals WHERE ctid = ANY (ARRAY(
            SELECT r.ctid FROM public.removals r
            WHERE history_days > 0 AND r.removed_at < now() - make_interval(days => history_days)
              AND r.removed_at < coalesce(
                  (SELECT min(w.joined_at) FROM public.workers w), now()
              ) - interval '1 hour'
              AND NOT EXISTS (
                  SELECT 1 FROM public.requests q
                  WHERE q.created_at < now() - make_interval(days => history_days)
              )
            LIMIT max_rows FOR UPDATE SKIP LOCKED
        )) RETURNING 1
    ), ended_audit AS (
        DELETE FROM public.audit WHERE ctid = ANY (ARRAY(
            SELECT a.ctid FROM public.audit a
            WHERE audit_days > 0 AND a.at < now() - make_interval(days => greatest(audit_days, 30))
            LIMIT max_rows FOR UPDATE SKIP LOCKED
        )) RETURNING 1
    )
    SELECT (SELECT count(*) FROM ended_requests), (SELECT count(*) FROM ended_removals),
        (SELECT count(*) FROM ended_audit)
$$;

REVOKE EXECUTE ON FUNCTION inferscale_end_history(integer, integer, integer) FROM PUBLIC;
"""


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    run(FUNCTION)

"""The rest of the job queue's tables and functions: as procrastinate 3.10 defines them."""

from alembic import op

from migrations.job_queue import queue_steps

revision = "20261129_1740"
down_revision = "20261129_1735"

FIRST_PART = "02.06.00_01_add_cancel_states.sql"
LAST_STEP = "03.04.00_50_post_add_retry_failed_job_procedure.sql"


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    for step in queue_steps(after=FIRST_PART, up_to=LAST_STEP):
        run(step)

"""The first part of the job queue's tables: up to the step that adds values to an enumeration.

Postgres before 17 does not let a transaction use values that it has added itself, and the next
steps build indexes with them.

The queue's tables belong to no tenant and have no row security: a job holds ids alone, and whoever
runs it sets the tenant it names.
"""

from alembic import op

from migrations.job_queue import queue_steps

revision = "20261129_1735"
down_revision = "20261129_1730"

LAST_STEP = "02.06.00_01_add_cancel_states.sql"


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    for step in queue_steps(up_to=LAST_STEP):
        run(step)

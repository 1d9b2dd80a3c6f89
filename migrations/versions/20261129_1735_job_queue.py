"""The job queue's own tables and functions, as procrastinate 3.10 defines them.

Applied from the steps that every procrastinate release carries, up to a fixed one, so that this
migration gives the same schema under a later release. A release that needs more gets a migration
of ours that applies its further steps.

The queue's tables belong to no tenant and have no row security: a job holds ids alone, and whoever
runs it sets the tenant it names.
"""

from importlib.resources import files

from alembic import op

revision = "20261129_1735"
down_revision = "20261129_1730"

LAST_STEP = "03.04.00_50_post_add_retry_failed_job_procedure.sql"


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    for step in queue_steps():
        run(step.replace("%", "%%"))


def queue_steps() -> list[str]:
    folder = files("procrastinate.sql") / "migrations"
    steps = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".sql")}
    if LAST_STEP not in steps:
        raise RuntimeError(f"this procrastinate does not carry {LAST_STEP}: install 3.10 or later")
    return [steps[name].read_text() for name in sorted(steps) if name <= LAST_STEP]

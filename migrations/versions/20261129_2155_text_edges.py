"""A chunk may have seen a fact as text: it depends on that fact's statement, and on nothing that
the fact's own chunk saw.

Code of before writes and reads the table as it did: the column has a default, and without knowing
of it that code drops more than it must.
"""

from alembic import op

revision = "20261129_2155"
down_revision = "20261129_2030"


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("SET LOCAL lock_timeout = '5s'")
    run("ALTER TABLE chunk_facts ADD COLUMN is_text boolean NOT NULL DEFAULT false")

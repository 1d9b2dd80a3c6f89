"""Alembic's entry: runs the steps on the connection that `migrations.schema` hands over."""

from alembic import context

from inferscale_core.store.rows import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()

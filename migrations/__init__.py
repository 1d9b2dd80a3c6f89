"""The database schema, step by step. Forward only: a step is undone by a further step."""

from migrations.schema import head_revision, upgrade

__all__ = ["head_revision", "upgrade"]

"""What all tables share.

Ids compare by code point (collation C), so that the database, Python and every worker order them
alike: "the older fact id" means the same everywhere.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import ARRAY, BigInteger, DateTime, MetaData, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

IdColumn = Annotated[str, mapped_column(Text(collation="C"))]
KeyColumn = Annotated[str, mapped_column(Text(collation="C"), primary_key=True)]
IdsColumn = Annotated[list[str], mapped_column(ARRAY(Text(collation="C")))]
TextColumn = Annotated[str, mapped_column(Text)]
CountColumn = Annotated[int, mapped_column(BigInteger)]
MomentColumn = Annotated[datetime, mapped_column(DateTime(timezone=True))]
JsonColumn = Annotated[dict[str, Any], mapped_column(JSONB)]


class Base(DeclarativeBase):
    """Every table is described here once more than in the migrations; a test compares the two."""

    metadata = MetaData()


TENANT_TABLE = {"is_tenant_table": True, "privileges": "SELECT, INSERT, UPDATE, DELETE"}
"""Row security is enabled and forced on a table with this info."""

APPEND_ONLY_TENANT_TABLE = {"is_tenant_table": True, "privileges": "SELECT, INSERT"}

SHARED_TABLE = {"is_tenant_table": False, "privileges": "SELECT, INSERT, UPDATE, DELETE"}
"""Holds no tenant's data."""

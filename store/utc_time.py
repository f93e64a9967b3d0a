"""Moments in SQL: aware, in UTC, exact to the microsecond on both databases."""

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC moment: timestamptz on PostgreSQL, microseconds since 1970 on SQLite (which has no such type)."""

    impl = sa.BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column type on each database."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """An aware moment to what the database takes."""
        if value is None or dialect.name == "postgresql":
            return value
        return (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """What the database gives to an aware moment in UTC."""
        if value is None:
            return None
        if dialect.name == "postgresql":
            return value.astimezone(UTC)  # type: ignore[no-any-return]
        return _EPOCH + timedelta(microseconds=value)

"""What every test may ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from store.database import migrate, open_database


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A fresh SQLite database, migrated."""
    engine = open_database(f"sqlite:///{tmp_path / 'foreshock.db'}")
    migrate(engine)
    yield engine
    engine.dispose()

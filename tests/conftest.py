"""What every test may ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings

from store.database import migrate, open_database

# A loaded machine makes no test fail: neither examples nor their making are timed.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """A fresh SQLite database, migrated."""
    engine = open_database(f"sqlite:///{tmp_path / 'foreshock.db'}")
    migrate(engine)
    yield engine
    engine.dispose()

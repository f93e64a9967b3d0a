"""Which policy was in force when."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from store.database.connections import writing
from store.hints.policy_history import newest_policy, note_policy, policies_page

NOW = datetime(2025, 3, 1, tzinfo=UTC)


def test_a_policy_is_written_down_when_it_is_another(any_engine: sa.Engine) -> None:
    """Back and forth counts each time; the newest first, in pages."""
    with writing(any_engine).begin() as connection:
        assert newest_policy(connection) is None
        new = [
            note_policy(connection, version, f"text of {version}", NOW + timedelta(hours=i))
            for i, version in enumerate(["a", "a", "b", "a"])
        ]
        assert new == [True, False, True, True]
        assert newest_policy(connection) == "a"
        rows = policies_page(connection, 10)
        assert [(row["version"], row["time"]) for row in rows] == [
            ("a", NOW + timedelta(hours=3)),
            ("b", NOW + timedelta(hours=2)),
            ("a", NOW),
        ]
        assert policies_page(connection, 1, before=rows[0]["seq"]) == [rows[1]]

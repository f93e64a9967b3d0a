"""What may be asked of a simulated cluster."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from simulator.site import DAY_MS, SimulationSettings


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nodes": 7}, "8 to 10000"),
        ({"nodes": 10_001}, "8 to 10000"),
        ({"days": 1}, "2 to 1000"),
        ({"days": 1_001}, "2 to 1000"),
        ({"rate_per_1000_node_days": 0.0}, "above 0"),
        ({"rate_per_1000_node_days": 51.0}, "at most 50"),
        ({"training": "wild"}, "steady or varied"),
        ({"start": datetime(2025, 1, 1)}, "midnight"),  # noqa: DTZ001  # a time without a zone is the point
        ({"start": datetime(2025, 1, 1, 3, tzinfo=UTC)}, "midnight"),
        ({"start": datetime(2025, 1, 1, 0, 0, 7, tzinfo=UTC)}, "midnight"),
        ({"start": datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=2)))}, "midnight"),
    ],
)
def test_what_cannot_be_simulated_is_refused(changed: dict[str, Any], words: str) -> None:
    """The message says what to choose."""
    with pytest.raises(ValueError, match=words):
        SimulationSettings(**changed)


def test_moments_and_offsets_are_inverse() -> None:
    """A time goes to milliseconds and back."""
    settings = SimulationSettings(days=3)
    moment = datetime(2025, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert settings.offset_ms(moment) == DAY_MS + (3 * 3600 + 4 * 60 + 5) * 1000 + 678
    assert settings.moment(settings.offset_ms(moment)) == moment


def test_the_length_is_the_days() -> None:
    """In milliseconds."""
    assert SimulationSettings(days=3).length_ms == 3 * DAY_MS

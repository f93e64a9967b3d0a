"""When a controller was started."""

from datetime import UTC, datetime, timedelta

import pytest

from schedulers.slurm.actuator import read_start

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
# The first lines of `scontrol show config` of Slurm 22.05, and the one that matters.
SAID = """\
Configuration data as of 2026-11-22T12:41:29
AccountingStorageBackupHost = (null)
BOOT_TIME               = {}
BurstBufferType         = (null)
"""


@pytest.mark.parametrize(
    ("told", "ago_s"), [("2026-11-22T12:41:29", 0), ("2026-11-22T12:41:19", 10), ("2026-11-21T12:41:29", 86400)]
)
def test_so_long_ago_as_by_the_controllers_own_clock(told: str, ago_s: int) -> None:
    """Its clock, or its time zone, may be another's."""
    assert read_start(SAID.format(told), NOW) == NOW - timedelta(seconds=ago_s)


@pytest.mark.parametrize("text", ["", "Configuration data as of 2026-11-22T12:41:29\n", SAID.format("(null)")])
def test_what_is_not_told_is_not_known(text: str) -> None:
    """Another version's words."""
    assert read_start(text, NOW) is None


def test_a_start_in_the_future_is_now() -> None:
    """A clock that was set back meanwhile."""
    assert read_start(SAID.format("2026-11-22T12:41:30"), NOW) == NOW

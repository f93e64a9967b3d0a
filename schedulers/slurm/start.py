"""When a controller was started, as `scontrol show config` tells it."""

import re
from datetime import datetime, timedelta

_MOMENT = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
_ASKED = re.compile(rf"^Configuration data as of {_MOMENT}", re.ASCII | re.MULTILINE)
_STARTED = re.compile(rf"^BOOT_TIME\s*=\s*{_MOMENT}", re.ASCII | re.MULTILINE)


def read_start(text: str, now: datetime) -> datetime | None:
    """The start by our own clock: so long ago as it is by the controller's. None where it is not told.

    Both are told in whole seconds: it may have been up to a second earlier or later.
    """
    asked, started = _ASKED.search(text), _STARTED.search(text)
    if asked is None or started is None:
        return None
    up = datetime.fromisoformat(asked[1]) - datetime.fromisoformat(started[1])
    return now - max(up, timedelta())

"""Lines that nobody read, as events of their own: whatever they said of a fault is unknown.

Each is of one place in its source (`origin`), so that the same gap is the same event whenever it is noticed.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from collectors.decoder import number
from store.catalog import judged
from store.event import Attribute, Event

_EPOCH = datetime.fromtimestamp(0, UTC)


def overrun(node: str, boot: str, seq: int, lost: int, moment_us: int) -> Event:
    """Records of the kernel's ring before this one were overwritten; `moment_us` is the Unix time of this one."""
    message = f"{lost} kernel log records were overwritten before they could be read."
    moment = _EPOCH + timedelta(microseconds=moment_us)
    return gap(node, moment, f"kmsg:{boot}:{seq}:gap", message, {"lost": lost, "origin": "kmsg"})


def boot_ended(node: str, boot: str, seq: int, moment_us: int) -> Event:
    """A boot's ring is gone: what it held after this record was not read; how much that was is not known.

    Args:
        moment_us: Unix time when the next boot began.
    """
    message = f"The kernel log of the boot before was read up to record {seq}: what followed is not known."
    moment = _EPOCH + timedelta(microseconds=moment_us)
    attributes: dict[str, Attribute] = {"origin": "kmsg", "boot": boot, "last": seq}
    return gap(node, moment, f"kmsg:{boot}:{seq}:unread", message, attributes, "reboot")


def gap(
    node: str, time: datetime, origin: str, message: str, attributes: Mapping[str, Attribute], variant: str = ""
) -> Event:
    """A gap of any source; `attributes` hold `lost` where the number is known."""
    source = "kernel" if origin.startswith(("kmsg:", "journal:")) else "sidecar"
    event = Event(time, node, source, "collector_gap", message=message, attributes=dict(attributes))
    return number(judged(event, variant), origin)

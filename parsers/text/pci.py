"""PCI addresses as tools print them, made one: PCI:0000:0F:00, 00000000:0f:00.0 and 0f:00.0 are 0000:0f:00.0."""

import re
from functools import lru_cache

# Domain (4 or 8 digits, or none), bus, device, function (or none). Drivers before 2010 print the bus with
# four digits and no domain: `0001:00`.
_FULL = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE | re.ASCII)
_OLD = re.compile(r"00([0-9a-f]{2}):([0-9a-f]{2})", re.IGNORECASE | re.ASCII)


# A log speaks of few devices many times.
@lru_cache(maxsize=4096)
def canonical(text: str) -> str | None:
    """The address as lower-case dddd:bb:dd.f, or None where the text is none. A missing function is 0."""
    bare = text.strip()
    if bare[:4].upper() == "PCI:":
        bare = bare[4:]
    if old := _OLD.fullmatch(bare):
        return f"0000:{old[1]}:{old[2]}.0".lower()
    match = _FULL.fullmatch(bare)
    if not match:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4] or 0}".lower()

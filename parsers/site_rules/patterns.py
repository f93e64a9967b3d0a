"""A site's patterns over the lines of a log: RE2, all of them in one pass over a line.

2025-03-01T04:05:06Z gpu-017 kernel: mmfs: suspected deadlock on fs7
-> {"kind": "gpfs_stall", "source": "kernel", "attributes": {"pattern": "gpfs_stall", "name": "fs7"}, ...}
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import re2

from parsers.site_rules.rules import SitePattern
from parsers.text.parser import Context
from parsers.text.prefix import PrefixReader
from parsers.text.re2_pattern import compiled, options
from parsers.text.stamp import Stamps
from store.records.event import Attribute, Device, Event, canonical_pci

ANYBODY = "*"


# A body of twenty thousand hosts has a parser for each, and all search for the same.
@lru_cache(maxsize=8)
def _searched_set(matches: tuple[str, ...]) -> re2.Set:
    found = re2.Set.SearchSet(options())
    for match in matches:
        found.Add(match)
    found.Compile()
    return found


class PatternMatcher:
    """Searches lines for a site's patterns."""

    def __init__(self, patterns: Sequence[SitePattern], context: Context) -> None:
        self._patterns = [(pattern, compiled(pattern.match)) for pattern in patterns]
        self._set = _searched_set(tuple(pattern.match for pattern in patterns))
        # An anchor means the message's begin: where there is one, a line is searched after its prefix was taken off.
        self._anchored = any("^" in pattern.match or "\\A" in pattern.match for pattern in patterns)
        self._reader = PrefixReader(Stamps(context))
        self._node = context.node

    def events(self, text: str, line: int, source: str) -> Iterable[Event]:
        """What the patterns find in a line; its time, host and program are read only where one does."""
        record = self._reader.read(text) if self._anchored else None
        places = self._set.Match(text if record is None else record.message)
        if not places:
            return
        record = record or self._reader.read(text)
        for place in sorted(places):
            pattern, regex = self._patterns[place]
            if pattern.program not in (ANYBODY, record.tag or "kernel"):
                continue
            found = regex.search(record.message)
            if found is None:  # it matched the prefix alone
                continue
            groups = {name: value for name, value in found.groupdict().items() if value is not None}
            pci = canonical_pci(groups.get("pci", ""))
            attributes: dict[str, Attribute] = {"pattern": pattern.name, **groups}
            yield Event(
                time=record.time,
                node=record.node or self._node,
                source=source,
                kind=pattern.kind,
                severity=pattern.severity,
                cause=pattern.cause,
                action=pattern.action,
                device=Device(type="pci", pci=pci) if pci else Device(),
                message=record.message[:1000],
                attributes=attributes,
                line=line,
            )

"""`subnet[:PATH]`: which links between switches opensm's own list lacks that it had before, and which are back.

    subnet                                   /var/log/opensm-subnet.lst, where opensm writes it
    subnet:/opt/ufm/files/log/opensm-subnet.lst

opensm's log says of a link between two switches that one of a switch's links changed, and not which. The list that it
writes at the end of the same sweep lacks that link. A link is told as lost while both its switches are still listed:
of a switch or an adapter's port that is gone the log says so by name. A port with another peer was cabled anew.
A link that was lost before its switch went away and is lost after it is back is told again: the switch passes for
well with all its links.
The first list that is read is the one to compare with: what changed while nobody looked is not told, but a link that
was told as lost and is back.
A list that a person's user (1000 and up) or everybody can write is refused, and counted as `writer`: it would name
cables in the manager's name. Its folder is root's, as opensm's own is: who can write there can exchange the file.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.trust import other_writer
from parsers.topology.subnet_list import SubnetLink, hexadecimal, listed_trunks
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

_PATH = "/var/log/opensm-subnet.lst"
_INTERVAL_S = 1.0
# A file that is the same at two looks so far apart is whole: opensm writes it at once.
_SETTLED_S = 0.1
# Lines that are read: 100,000 adapters' links and 30,000 between switches are 260,000.
_MOST_LINES = 1_000_000
_MOST_CHARACTERS = 4_096  # of a line; opensm's have 400
# Links that are remembered as lost, and as away with their switches.
_MOST_LOST, _MOST_AWAY = 10_000, 100_000

_End = tuple[int, int]  # GUID and port
_Key = tuple[_End, _End]  # the lower end first
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class SubnetLinks:
    """The links between switches in one list, the switches, and whether every link has both its lines."""

    links: Mapping[_Key, SubnetLink]
    switches: frozenset[int]
    is_whole: bool
    lines: int

    @classmethod
    def of(cls, found: Iterable[SubnetLink]) -> "SubnetLinks":
        """The list of these lines."""
        links: dict[_Key, SubnetLink] = {}
        lone: set[_Key] = set()  # those that were met once
        lines = 0
        for link in found:
            lines += 1
            key = _key(link)
            links.setdefault(key, link)
            lone ^= {key}
        return cls(links, frozenset(guid for key in links for guid, _port in key), not lone, lines)

    def ends(self) -> dict[_End, SubnetLink]:
        """The link of each port."""
        return {end: link for key, link in self.links.items() for end in key}

    def lost_since(self, before: "SubnetLinks") -> tuple[dict[_Key, SubnetLink], dict[_Key, SubnetLink]]:
        """The links of an earlier list that are gone, and those away with a switch; none whose port is cabled anew."""
        gone = {key: link for key, link in before.links.items() if key not in self.links}
        cabled = self.ends() if gone else {}
        gone = {key: link for key, link in gone.items() if not any(end in cabled for end in key)}
        lost = {key: link for key, link in gone.items() if all(guid in self.switches for guid, _port in key)}
        return lost, {key: link for key, link in gone.items() if key not in lost}


class SubnetCollector:
    """One opensm's list."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is the list's path, or empty."""
        self.spec = f"subnet:{rest}" if rest else "subnet"
        self._path = Path(rest or _PATH)
        self._interval_s = settings.interval_s or _INTERVAL_S
        self.wake = Wake()
        self._due = 0.0
        self._seen: _Stamp | None = None  # at the last look
        self._read: _Stamp | None = None  # as last taken
        self._refused: _Stamp | None = None  # as last refused
        self._known: SubnetLinks | None = None
        self._lost: dict[_Key, None] = {}  # as they were told
        self._switches: frozenset[int] | None = None  # of the list before

    def open(self, position: Position | None) -> None:
        """Take up what was told as lost.

        Raises:
            SourceError: there is no list, or others can write it.
        """
        writer = other_writer(self._path)
        if position is None and writer is not None:
            raise SourceError(f"{self.spec}: {writer}: let root alone write {self._path}, as opensm does")
        if position is None and not self._path.is_file():
            raise SourceError(
                f"{self.spec}: there is no {self._path}: opensm writes it into its dump_files_dir at each heavy sweep;"
                " name its path, and let the sidecar run where opensm does"
            )
        self._lost = dict.fromkeys(((a, b), (c, d)) for a, b, c, d in (position or {}).get("lost", []))
        self._seen = self._read = self._known = self._switches = None
        self._due = time.monotonic()

    def collect(self, wait_s: float) -> CollectorTurn:
        """What a new list says, once it is whole."""
        if not self.wake.wait_until(self._due, wait_s):
            return CollectorTurn()
        stamp = self._stamp()
        if other_writer(self._path) is not None:
            is_news, self._refused = stamp != self._refused, stamp
            self._due = time.monotonic() + self._interval_s
            return CollectorTurn(refused={"writer": 1} if is_news else {})
        is_settled, self._seen = stamp == self._seen, stamp
        is_new = stamp is not None and stamp != self._read
        self._due = time.monotonic() + (_SETTLED_S if is_new and not is_settled else self._interval_s)
        if stamp is None or not is_new or not is_settled:
            return CollectorTurn()
        found = SubnetLinks.of(listed_trunks(islice(self._lines(), _MOST_LINES)))
        if self._stamp() != stamp:
            return CollectorTurn()
        self._read = stamp
        if not found.is_whole:
            return CollectorTurn(lines=found.lines, errors=1)
        return self._turn(found, datetime.fromtimestamp(stamp[1] / 1e9, UTC))

    def close(self) -> None:
        """Nothing is held open between looks."""

    def _stamp(self) -> _Stamp | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return (status.st_ino, status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None

    def _lines(self) -> Iterator[str]:
        """The list's lines, each of a bounded length; a pipe in its place keeps nobody waiting."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
            while line := file.readline(_MOST_CHARACTERS):
                yield line

    def _turn(self, found: SubnetLinks, now: datetime) -> CollectorTurn:
        lost, away = ({}, {}) if self._known is None else found.lost_since(self._known)
        # A switch that is away comes back with its links, or without some.
        self._known = replace(found, links={**found.links, **dict(islice(away.items(), _MOST_AWAY))})
        cabled = found.ends() if self._lost else {}
        events: list[Event] = []
        for key in list(self._lost):
            link = cabled.get(key[0]) or cabled.get(key[1])
            if link is not None:
                del self._lost[key]
                events.append(_event("link_up", _seen_from(key, link), now))
        for key, link in (self._lost_still(found) | lost).items():
            events.append(_event("link_down", link, now))
            if len(self._lost) < _MOST_LOST:
                self._lost[key] = None
        self._switches = found.switches
        position = {"lost": [[*near, *far] for near, far in self._lost]}
        return CollectorTurn(events=tuple(events), position=position, lines=found.lines)

    def _lost_still(self, found: SubnetLinks) -> dict[_Key, SubnetLink]:
        """The links that were told, of switches that are back since the list before."""
        back = frozenset() if self._switches is None else found.switches - self._switches
        keys = [key for key in self._lost if any(guid in back for guid, _port in key)]
        known = {end.guid: end for link in found.links.values() for end in link} if keys else {}
        return {
            key: SubnetLink(*(known[guid]._replace(port=port) for guid, port in key))
            for key in keys
            if all(guid in known for guid, _port in key)
        }


def _seen_from(key: _Key, link: SubnetLink) -> SubnetLink:
    """A link with that end first that is one of a lost link's."""
    return link if (link.near.guid, link.near.port) in key else SubnetLink(link.far, link.near)


def _key(link: SubnetLink) -> _Key:
    near, far = sorted((end.guid, end.port) for end in link)
    return near, far


def _event(kind: str, link: SubnetLink, now: datetime) -> Event:
    """What became of a link, at one of its ends."""
    near, far = link
    attributes: dict[str, Attribute] = {"lid": near.lid, "peer": far.name, "peer_port": far.port}
    device = Device(type="port", uuid=hexadecimal(near.guid), port=near.port)
    return with_kind_meaning(Event(now, None, "opensm", kind, device=device, attributes=attributes), "fabric")

"""What a log has told of its fabric so far: whose a GUID is, which switch has a LID, who stands at the end of a route.

    Discovered new port with GUID:0xb83fd203001000c0 LID range [30,30] of node: MF0;leaf04:MQM8700/U1
    -> guid_of(30) == "0xb83fd203001000c0"; place_of("0xb83fd203001000c0").switch == "leaf04"

The memory is bounded: the oldest entry goes first.
"""

import re
from ipaddress import AddressValueError, IPv6Address
from typing import TypeVar

from parsers.fabric import Place, place, switch_place

# More ports than any fabric has LIDs for (49,151); a route and a name each take some 200 bytes.
MOST_NAMES = 65_536
# A route is kept only where a switch stands at its end: fabrics have some thousand switches.
MOST_ROUTES = 16_384

_NAMED = (
    re.compile(
        r"(?:\w{1,64}: )?Node (?P<guid>0x[0-9a-f]{1,16}),?\s{1,20}Description = (?P<name>\S[^\n]{0,255})", re.ASCII
    ),
    re.compile(r"[^\n]{0,200}?(?P<guid>0x[0-9a-f]{16}) \((?:node )?'?(?P<name>[^()'\n]{1,128})", re.ASCII),
)
_LOCAL = 2**64 - 1
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Names:
    """The names of one fabric, as its log tells them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._guids: dict[int, str] = {}
        self._switches: dict[str, None] = {}
        self._routes: dict[str, str] = {}

    def learn(self, guid: str, description: str) -> None:
        """A GUID belongs to the node of a description."""
        if description.strip() not in ("", "<unknown>"):
            _keep(self._names, guid, description.strip()[:256], MOST_NAMES)

    def learn_lid(self, lid: int, guid: str, *, of_switch: bool = False) -> None:
        """A LID belongs to a port's GUID."""
        if lid:
            _keep(self._guids, lid, guid, MOST_NAMES)
        if of_switch:
            _keep(self._switches, guid, None, MOST_ROUTES)

    def learn_route(self, path: str, guid: str) -> None:
        """A switch stands at the end of a directed route from the manager."""
        _keep(self._routes, path, guid, MOST_ROUTES)

    def listen(self, text: str) -> None:
        """A record that may say whose a GUID is: `nd_rcv_process_nd`, or a GUID with a name in parentheses."""
        if "Description = " not in text and " (" not in text:
            return
        for form in _NAMED:
            if match := form.match(text):
                self.learn(canonical_guid(match["guid"]), match["name"])
                return

    def guid_of(self, lid: int) -> str | None:
        """The GUID that has a LID, where the log has told."""
        return self._guids.get(lid)

    def at_end_of(self, path: str) -> str | None:
        """The GUID of the switch at the end of a route, where the log has told."""
        return self._routes.get(path)

    def is_switch(self, guid: str) -> bool:
        """Whether a GUID is known to be a switch's: it sent a trap that only switches send."""
        return guid in self._switches

    def place_of(self, guid: str | None, description: str | None = None) -> Place:
        """Whose a GUID is, by a description at hand or, where that is none or `<unknown>`, by one told before."""
        found = place(description or "")
        if not found.text:
            found = place(self._names.get(guid or "", ""))
        return switch_place(found.text) if guid in self._switches else found


def _keep(into: dict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    into[key] = value
    if len(into) > most:
        del into[next(iter(into))]


def canonical_guid(text: str) -> str:
    """`0x200000` and `0x0000000000200000` are one GUID: 0x and sixteen digits."""
    return f"0x{int(text, 16):016x}"


def guid_of_gid(text: str) -> str | None:
    """The GUID within a GID that is printed as IPv6 text; None where it is none.

    fe80::b83f:d203:20:61 -> 0xb83fd20300200061
    """
    try:
        return f"0x{int(IPv6Address(text)) & _LOCAL:016x}"
    except (AddressValueError, ValueError):
        return None

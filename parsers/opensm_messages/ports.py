"""Ports that vanish and return, links that change state, error counters of a port.

drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 LID range [17, 17] of node:gpu007 mlx5_0
osm_pi_rcv_process: Switch 0x200000 Switch1 port 3 changed state from ACTIVE to DOWN
-> {"kind": "link_down", "device": {"type": "port", "uuid": "0x0000000000200000", "port": 3},
    "attributes": {"from": "ACTIVE", "to": "DOWN", "switch": "Switch1"}, ...}
"""

import re

from parsers.opensm_messages.names import Names, canonical_guid
from store.catalog import judged
from store.event import Attribute, Device, Event

_PRESENCE = re.compile(
    r"(?:\w{1,64}: )?(?P<verb>Removed|Discovered new) port with GUID:? ?(?P<guid>0x[0-9a-f]{1,16}) "
    r"LID range \[(?P<lid>\d{1,5}), ?\d{1,5}\] of node: ?(?P<node>[^\n]{0,256})",
    re.ASCII,
)
_CHANGED = re.compile(
    r"(?:\w{1,64}: )?Switch (?P<guid>0x[0-9a-f]{1,16}) (?P<name>[^\n]{0,128}?) port (?P<port>\d{1,3})"
    r"(?: \((?P<label>[^)\n]{0,64})\))? changed state from (?P<before>\w{1,16}) to (?P<after>\w{1,16})",
    re.ASCII,
)
_UNLINKED = re.compile(
    r"(?:\w{1,64}: )?Unlinking local node (?P<guid>0x[0-9a-f]{1,16}), port (?P<port>\d{1,3})"
    r"(?:\s{1,20}and remote node (?P<peer>0x[0-9a-f]{1,16}), port (?P<peer_port>\d{1,3}))?",
    re.ASCII,
)
_COUNTER = re.compile(
    r"(?:\w{1,64}: )?ERR (?P<error>\w{4}): (?P<counter>\w{1,64}) : (?P<count>\d{1,18}) : "
    r'node "(?P<name>[^"\n]{0,128})" \(NodeGUID: (?P<guid>0x[0-9a-f]{1,16})\) : port (?P<port>\d{1,3})'
    r'(?: connected to "(?P<peer>[^"\n]{0,128})"[^:\n]{0,16}(?::[^:\n]{0,32})?: port (?P<peer_port>\d{1,3}))?',
    re.ASCII,
)


def decode(text: str, names: Names) -> Event | None:
    """The event of a message that speaks of a port; None for another."""
    if match := _PRESENCE.match(text):
        return _presence(match, names)
    if match := _CHANGED.match(text):
        return _changed(match, names)
    if match := _UNLINKED.match(text):
        return _unlinked(match, names)
    if match := _COUNTER.match(text):
        return _counter(match, names)
    return None


def _event(kind: str, device: Device, node: str | None, message: str, attributes: dict[str, Attribute]) -> Event:
    return Event(None, node, "opensm", kind, device=device, message=message, attributes=attributes)


def _presence(match: re.Match[str], names: Names) -> Event:
    """A port that was removed or found, on its host or switch."""
    guid, lid = canonical_guid(match["guid"]), int(match["lid"])
    where = names.place_of(guid, match["node"])
    names.learn(guid, match["node"])
    names.learn_lid(lid, guid, of_switch=where.switch is not None)
    gone = match["verb"] == "Removed"
    attributes: dict[str, Attribute] = {} if lid == 0 else {"lid": lid}
    device = Device(type="switch" if where.switch or names.is_switch(guid) else "port", uuid=guid)
    message = f"{match['verb']} port of {where.text or 'an unknown node'}"
    kind = "port_removed" if gone else "port_discovered"
    return judged(_event(kind, device, where.host, message, {**attributes, **where.attributes()}))


def _changed(match: re.Match[str], names: Names) -> Event:
    """A switch's port that changed state (MLNX opensm and nvlsm say so, the upstream one does not)."""
    before, after, guid = match["before"], match["after"], canonical_guid(match["guid"])
    names.learn(guid, match["name"])
    where = names.place_of(guid, match["name"])
    attributes: dict[str, Attribute] = {"from": before, "to": after, "switch": where.switch or match["name"]}
    if match["label"]:
        attributes["label"] = match["label"]
    kind = "link_down" if after == "DOWN" else "link_up" if before == "DOWN" else "link_state_change"
    device = Device(type="port", uuid=guid, port=int(match["port"]))
    message = f"{match['name']} port {match['port']} changed state from {before} to {after}"
    return judged(
        _event(kind, device, None, message, attributes), "settling" if kind == "link_state_change" else "fabric"
    )


def _unlinked(match: re.Match[str], names: Names) -> Event:
    """A link that the manager takes out of its map; the host of either end is the node."""
    guid = canonical_guid(match["guid"])
    where, far = names.place_of(guid), None
    attributes: dict[str, Attribute] = where.attributes()
    node = where.host
    if match["peer"]:
        far = canonical_guid(match["peer"])
        attributes |= {"peer": names.place_of(far).text or far, "peer_port": int(match["peer_port"])}
        node = node or names.place_of(far).host
    device = Device(type="port", uuid=guid, port=int(match["port"]))
    return judged(_event("link_down", device, node, "Link unlinked by the subnet manager", attributes), "fabric")


def _counter(match: re.Match[str], names: Names) -> Event:
    """An error counter that rose, by how much. The peer's GUID is not taken: opensm prints it byte-swapped."""
    guid = canonical_guid(match["guid"])
    names.learn(guid, match["name"])
    where, peer = names.place_of(guid, match["name"]), names.place_of(None, match["peer"] or "")
    attributes: dict[str, Attribute] = {
        "counter": match["counter"],
        "count": int(match["count"]),
        **where.attributes(),
    }
    if match["peer"]:
        attributes |= {"peer": peer.text, "peer_port": int(match["peer_port"])}
    device = Device(type="port", uuid=guid, port=int(match["port"]))
    message = f"{match['counter']} +{match['count']} at {match['name']} port {match['port']}"
    return judged(_event("counter", device, where.host or peer.host, message, attributes), "port")

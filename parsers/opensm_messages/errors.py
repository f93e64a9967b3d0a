"""Every `ERR xxxx` of the subnet manager: the code, the function, and the node or port that the words name.

    state_mgr_light_sweep_start: ERR 3315: Unknown remote side for node 0xb83fd2030010fa40 (MF0;spine02:MQM8700/U1)
        port 3. Adding to light sweep sampling list                                                 (one line)
    -> {"kind": "sm_error", "severity": "warning", "device": {"type": "port", "uuid": "0xb83fd2030010fa40", "port": 3},
        "attributes": {"error": "3315", "function": "state_mgr_light_sweep_start", "switch": "spine02"}, ...}

What the known codes mean stands in `store/catalogs/opensm.csv`; an unknown one is an error to be watched. A number is
text: it is hexadecimal, and some of opensm's own begin with the letter O.
"""

import re
from dataclasses import replace

from parsers.opensm_messages.names import Names, canonical_guid
from store.catalog import judged, opensm_errors
from store.event import Attribute, Device, Event

_ERROR = re.compile(
    r"(?:PerfMgr: )?(?:(?P<function>\w{1,64}): )?(?:PerfMgr: )?ERR (?P<error>\w{4}): ?(?P<message>.{0,2000})",
    re.ASCII | re.DOTALL,
)
_DUPLICATE = re.compile(
    r"Found duplicated node GUID\.\s{1,40}Node (?P<guid>0x[0-9a-f]{1,16}) port (?P<port>\d{1,3}) is reachable from "
    r"remote node (?P<first>0x[0-9a-f]{1,16}) port (?P<first_port>\d{1,3}) and "
    r"remote node (?P<second>0x[0-9a-f]{1,16}) port (?P<second_port>\d{1,3})",
    re.ASCII,
)
_WORD = r"\b(?P<what>GUID|guid|[Pp]ort|[Nn]ode|[Ss]witch|[Rr]outer)"
_GUID = re.compile(rf"{_WORD}(?: GUID| guid| by guid| with GUID)?[ :]{{0,3}}(?P<guid>0x[0-9a-f]{{1,16}})", re.ASCII)
_BARE_GUID = re.compile(r"(?<!TID )(?<!TID:)\b(?P<guid>0x[0-9a-f]{16})\b", re.ASCII)
_PORT = re.compile(r"\b(?:port(?: num)?|num)[ :]{1,2}(?P<port>\d{1,3})\b(?! times)", re.ASCII)
_LID = re.compile(r"\b[Ll](?:ID|id)[ :]{1,2}(?P<lid>\d{1,5})\b", re.ASCII)
# `cn017 HCA-1 (0x0008f10403970e1c) port 1`: the performance manager names the node first.
_NAME_FIRST = re.compile(
    r"(?:.{0,100}? (?:on node|on|for) )?\"?(?P<name>[^()\"\n]{1,64}?)\"? \((?:\w{1,8} )?(?P<guid>0x[0-9a-f]{16})\)"
)
_PARENTHESES = re.compile(r"(?P<guid>0x[0-9a-f]{16}) \((?:node )?'?(?P<name>[^()'\n]{1,128})", re.ASCII)


def decode(text: str, names: Names) -> Event | None:
    """The event of a message with an error's number; None for another."""
    match = _ERROR.match(text)
    if not match:
        return None
    error, function, message = match["error"], match["function"] or "", match["message"].strip()
    attributes: dict[str, Attribute] = {"error": error}
    if function:
        attributes["function"] = function
    event = judged(Event(None, None, "opensm", "sm_error", message=_one_line(message), attributes=attributes))
    known = opensm_errors().get((error, function)) or opensm_errors().get((error, ""))
    if known:
        event = replace(event, severity=known.severity, cause=known.cause, action=known.action)
    if duplicate := _DUPLICATE.match(message):
        return _duplicate(event, duplicate, names)
    return _placed(event, message, names)


def _one_line(text: str) -> str:
    """The words of a record that spans lines, its first 400 letters."""
    return " ".join(text.split())[:400]


def _placed(event: Event, message: str, names: Names) -> Event:
    """The event at the node or port that the words name, if they name one."""
    attributes: dict[str, Attribute] = dict(event.attributes)
    port = int(found["port"]) if (found := _PORT.search(message)) else None
    lid = int(found["lid"]) if (found := _LID.search(message)) else None
    if lid:
        attributes["lid"] = lid
    told = _GUID.search(message) or _BARE_GUID.search(message)
    guid = canonical_guid(told["guid"]) if told else names.guid_of(lid or 0)
    if guid is None:
        return replace(event, attributes=attributes)
    named = _PARENTHESES.search(message) or _NAME_FIRST.match(message)
    where = names.place_of(guid, named["name"] if named and canonical_guid(named["guid"]) == guid else None)
    if port is not None:
        kind = "port"
    elif where.switch or (told and told.groupdict().get("what", "").lower() == "switch"):
        kind = "switch"
    else:
        kind = "hca" if told and told.groupdict().get("what", "").lower() == "node" else "port"
    device = Device(type=kind, uuid=guid, port=port)
    return replace(event, node=where.host, device=device, attributes={**attributes, **where.attributes()})


def _duplicate(event: Event, match: re.Match[str], names: Names) -> Event:
    """Two nodes with one GUID: the switch ports at which they hang are the places to look."""
    guid = canonical_guid(match["guid"])
    where = names.place_of(guid)
    ends = sorted(
        (canonical_guid(match[end]), int(match[f"{end}_port"])) for end in ("first", "second")
    )  # opensm names them in either order
    attributes: dict[str, Attribute] = dict(event.attributes)
    for number, (switch, port) in enumerate(ends, start=1):
        attributes[f"seen_at_{number}"] = f"{names.place_of(switch).text or switch} port {port}"
    device = Device(type="hca", uuid=guid, port=int(match["port"]))
    message = f"Duplicate node GUID {guid}: {attributes['seen_at_1']} and {attributes['seen_at_2']}"
    attributes |= where.attributes()
    return replace(event, node=where.host, device=device, message=message, attributes=attributes)

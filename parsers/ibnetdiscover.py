"""The fabric's topology, as `ibnetdiscover` prints it: which switch port is cabled to which peer.

    Switch	40 "S-b83fd20300100080"		# "MF0;leaf03:MQM8700/U1" enhanced port 0 lid 21 lmc 0
    [1]	"H-b83fd20300200100"[1](b83fd20300200101) 		# "gpu017 mlx5_0" lid 4 4xHDR
    [39]	"S-b83fd2030010fa00"[3]		# "MF0;spine01:MQM8700/U1" lid 3 4xHDR

gives for the second line (a topology is a state and no happening, so it is no event):

    {"switch": "leaf03", "port": 1, "peer": "gpu017", "peer_port": 1, "peer_type": "hca"}

A switch bears the name within its description, a host the first word of its HCA's description (the host name).
Only the blocks of switches are read: each cable of a host stands there too.
"""

import re
from collections.abc import Iterable, Iterator

from parsers.parser import MAX_LINE, OnError, ParseError

_BLOCK = re.compile(r'(?P<type>Switch|Ca|Rt)\s+\d+\s+"(?P<id>[^"]+)"(?:[^#]*#\s*"(?P<name>[^"]*)")?')
_CABLE = re.compile(
    r"\[(?P<port>\d{1,3})\](?:\([0-9a-fA-F]+\))?(?:\[ext \d+\])?\s+"
    r'"(?P<peer>[SHR]-[0-9a-fA-F]+)"\[(?P<peer_port>\d{1,3})\]'
    r'(?:[^#]*#(?:\s*lid \d+ lmc \d+)?\s*"(?P<name>[^"]*)")?'
)

Link = dict[str, str | int]


def links(lines: Iterable[str], on_error: OnError | None = None) -> Iterator[Link]:
    """Every cable that the switches of a topology name, in the order of the text.

    A broken row is told to `on_error` and skipped.
    """
    switch: str | None = None
    for number, line in enumerate(lines, start=1):
        text = line[:MAX_LINE].strip()
        block = _BLOCK.match(text)
        if block:
            switch = switch_name(block["name"] or block["id"]) if block["type"] == "Switch" else None
        elif switch is not None and text.startswith("["):
            cable = _CABLE.match(text)
            if cable:
                yield _link(switch, cable)
            elif on_error is not None:
                on_error(number, ParseError(f"{text[:60]!r} is no port of a switch: run ibnetdiscover anew"))


def _link(switch: str, cable: re.Match[str]) -> Link:
    name, is_switch = cable["name"] or cable["peer"], cable["peer"].startswith("S-")
    return {
        "switch": switch,
        "port": int(cable["port"]),
        "peer": switch_name(name) if is_switch else (name.split() or [cable["peer"]])[0],
        "peer_port": int(cable["peer_port"]),
        "peer_type": "switch" if is_switch else "hca",
    }


def switch_name(description: str) -> str:
    """The short name of a switch: leaf03 of `MF0;leaf03:MQM8700/U1`; the description itself where it has none."""
    found = re.match(r"(?:MF0;)?([^:;/]+)", description)
    return (found[1].strip() if found else "") or description

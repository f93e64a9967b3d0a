"""Every cable as UFM's REST server tells it: what `GET /ufmRest/resources/links` answers.

    [{"source_guid": "b83fd20300100080", "source_port": "b83fd20300100080_1", "source_port_node_description": "leaf03",
      "destination_guid": "b83fd20300200100", "destination_port": "b83fd20300200100_1",
      "destination_port_node_description": "gpu017 mlx5_0", "width": "IB_4x", ...}]
    -> FabricLink("leaf03", 1, "gpu017", 1, "hca", hca="mlx5_0", ...)

The fields are those of NVIDIA's "UFM Enterprise REST API guide", links. An end whose description names an adapter after
the host's name is an adapter; any other one is a switch.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from parsers.formats.ibnetdiscover import switch_name
from parsers.text.parser import ParseError
from store.records.node import FabricLink

_ADAPTER = re.compile(r"(?:mlx|mthca|hfi|qib|bnxt|irdma|hca)[\w.-]{0,32}", re.ASCII | re.IGNORECASE)
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}", re.ASCII)

_End = tuple[str, str | None, int]


def ufm_links(text: str) -> Iterator[FabricLink]:
    """Every cable that a switch is an end of.

    Raises:
        ParseError: it is no JSON, or no list.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ParseError(f"it is no JSON: {error}: write what /ufmRest/resources/links answers") from error
    if not isinstance(found, list):
        raise ParseError("it is no list of links: write what /ufmRest/resources/links answers")
    for link in found:
        ends = [_end(link, side) for side in ("source", "destination")] if isinstance(link, dict) else []
        if len(ends) != 2 or None in ends:
            continue
        near, far = (end for end in ends if end is not None)
        switches = [_adapter_of(end[0]) is None for end in (near, far)]
        if switches[1] and not switches[0]:
            near, far = far, near
        if any(switches):
            yield _cable(near, far, all(switches))


def _end(link: Mapping[str, Any], side: str) -> _End | None:
    """One end of a link: its description, GUID and port."""
    name, guid, port = (link.get(f"{side}_{key}") for key in ("port_node_description", "guid", "port"))
    number = str(port).rpartition("_")[2]
    if not isinstance(name, str) or not name.strip() or not number.isdecimal() or len(number) > 4:
        return None
    known = f"0x{int(guid, 16):016x}" if isinstance(guid, str) and _HEX.fullmatch(guid) else None
    return name.strip()[:256], known, int(number)


def _adapter_of(description: str) -> str | None:
    """The adapter that a description names after its host; None of a switch's."""
    words = description.split()
    return words[1] if len(words) > 1 and _ADAPTER.fullmatch(words[1]) else None


def _cable(near: _End, far: _End, is_trunk: bool) -> FabricLink:
    return FabricLink(
        switch_name(near[0]),
        near[2],
        switch_name(far[0]) if is_trunk else far[0].split()[0],
        far[2],
        "switch" if is_trunk else "hca",
        switch_guid=near[1],
        peer_guid=far[1],
        hca=_adapter_of(far[0]),
    )

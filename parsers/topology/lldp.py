"""Which switch port each interface of a node is cabled to, as its neighbours tell by LLDP (lldpd's lldpctl, lldpcli).

    lldpctl -f keyvalue                     lldp.eth2.chassis.name=leaf04
                                            lldp.eth2.port.ifname=Ethernet1/12
    lldpctl -f json (also json0)            {"lldp": {"interface": [{"eth2": {"chassis": {"leaf04": ...}, ...}}]}}
    -> FabricLink("leaf04", 1012, "gpu-017", hca="eth2", port_name="Ethernet1/12", switch_guid="80:a2:...", ...)

A port's number is made of those in its name: Ethernet1/12 is 1012, swp12 is 12. The text names no node: who sends it,
or the file's name, does. A neighbour whose port bears no number is no cable of the fabric.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from parsers.text.parser import ParseError
from store.records.node import MOST_NAME, FabricLink

MOST_INTERFACES = 512
_KEY = re.compile(r"lldp\.(?P<interface>[^=]{1,64}?)\.(?P<part>chassis|port)\.(?P<key>[\w-]{1,32})=(?P<value>.{0,256})")
_NUMBERS = re.compile(r"\d{1,4}", re.ASCII)
_MOST_PORT = 2**31 - 1


def lldp_links(text: str, node: str) -> list[FabricLink]:
    """The cables of a node, by interface.

    Raises:
        ParseError: it is neither lldpctl's JSON nor its key-value form.
    """
    stripped = text.lstrip()
    found = _of_json(stripped) if stripped.startswith(("{", "[")) else _of_keys(stripped)
    links = []
    for interface, neighbour in list(found)[:MOST_INTERFACES]:
        switch, port = neighbour.get("switch"), neighbour.get("port")
        if not switch or not port or not 0 < len(interface) <= 64:
            continue
        number = port_number(port)
        if number is not None:
            links.append(
                FabricLink(
                    switch,
                    number,
                    node,
                    None,
                    "hca",
                    switch_guid=neighbour.get("id"),
                    port_name=port,
                    hca=interface,
                )
            )
    return links


def port_number(name: str) -> int | None:
    """One number for a port's name: its own, or of several the last three, each below a thousand; None without any."""
    parts = [int(part) for part in _NUMBERS.findall(name)][-3:]
    number = 0
    for part in parts:
        number = number * 1000 + part
    return number if parts and number <= _MOST_PORT else None


def _of_keys(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        match = _KEY.match(line.strip())
        if match is None:
            if line.strip() and not line.startswith("lldp."):
                raise ParseError(f"{line.strip()[:60]!r} is nothing of `lldpctl -f keyvalue`, nor JSON")
            continue
        own = found.setdefault(match["interface"], {})
        part, key, value = match["part"], match["key"], match["value"].strip()
        if part == "chassis" and key == "name":
            own["switch"] = value
        elif part == "chassis" and key in ("mac", "local", "ip"):
            own.setdefault("id", value)
        elif part == "port" and key in ("ifname", "local", "mac", "descr"):
            _take_port(own, key, value)
    yield from found.items()


def _take_port(own: dict[str, str], key: str, value: str) -> None:
    """The port by its interface's name; else by its own number, else by its description."""
    order = ("ifname", "local", "descr")
    if key in order and (own.get("port_by") is None or order.index(key) < order.index(own["port_by"])):
        own["port"], own["port_by"] = value[:MOST_NAME], key


def _of_json(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ParseError(f"it is no JSON: {error}: write `lldpctl -f json`") from error
    section = found.get("lldp") if isinstance(found, dict) else None
    for each in section if isinstance(section, list) else [section]:
        entries = each.get("interface", []) if isinstance(each, dict) else None
        if entries is None:
            raise ParseError("it has no `lldp`: write `lldpctl -f json`")
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, dict):
                # json0 names the interface within; json has it as the key.
                named = [(entry["name"], entry)] if isinstance(entry.get("name"), str) else list(entry.items())
                yield from ((name, _neighbour(own)) for name, own in named if isinstance(own, dict))


def _neighbour(own: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    chassis, port = _first(own.get("chassis")), _first(own.get("port"))
    if chassis:
        ident = chassis.get("id")
        name = _value(chassis.get("name"))
        if name is None and isinstance(ident, dict | list) is False and len(chassis) == 1:
            name, chassis = next(iter(chassis.items()))
            chassis = chassis if isinstance(chassis, dict) else {}
        if name:
            found["switch"] = str(name)[:MOST_NAME]
        if (value := _value(chassis.get("id"))) is not None:
            found["id"] = value
    if port:
        ident = _first(port.get("id"))
        if ident and isinstance(ident.get("type"), str) and (value := _value(ident)) is not None:
            _take_port(found, ident["type"], value)
        if (value := _value(port.get("descr"))) is not None:
            _take_port(found, "descr", value)
    return found


def _first(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, dict) else {}


def _value(value: Any) -> str | None:
    """A text, however it is wrapped: `x`, {"value": "x"}, [{"value": "x"}]."""
    if isinstance(value, list | dict):
        value = _first(value).get("value")
    return value[:MOST_NAME] if isinstance(value, str) and value else None

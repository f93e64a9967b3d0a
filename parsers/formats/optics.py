"""What the transceiver or cable of a port tells of itself, as `ethtool -m` and `mlxlink -m -c` print it.

    # mlx5_3
    Rx Power Current [dBm]             : -14.318,-1.906,-2.018,-1.887 [-9.4..6]
    -> {"kind": "optics_alarm", "severity": "error", "device": {"type": "hca"},
        "attributes": {"name": "mlx5_3", "reading": "rx_power", "lane": 1, "value": -14.318, "least": -9.4, ...}, ...}

        Laser rx power low alarm    (Channel 2)   : On
    -> {"kind": "optics_alarm", "severity": "error", "attributes": {"name": "eth2", "reading": "rx_power",
        "lane": 2, "limit": "low alarm"}, ...}

A value is told where it is outside of the module's own limits (mlxlink prints them, ethtool says `On`), where no light
comes in, and where the rate of bit errors after correction is higher than a link may have. Neither tool prints whose
module it is, nor a time: say the first before each, the second is the moment of reading.

    for d in mlx5_0 mlx5_1; do echo "# $d"; mlxlink -d $d -m -c; done
    for d in eth0 eth1; do echo "# $d"; ethtool -m $d; done
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from parsers.text.parser import Context, Format
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

_NAME = re.compile(r"#+ {0,4}(?P<name>[A-Za-z][\w.:-]{0,63})\s*$", re.ASCII)
_FLAG = re.compile(
    r"\s*(?P<what>Laser (?:tx )?bias(?: current)?|Laser (?P<way>[rt]x) power|(?:Laser )?output power"
    r"|Module (?P<part>temperature|voltage))"
    r" (?P<limit>(?:high|low) (?:alarm|warning))\s{0,12}(?:\((?:Chan|Channel) (?P<lane>\d{1,2})\))?\s{0,40}: On\s*$",
    re.ASCII | re.IGNORECASE,
)
_VALUES = re.compile(
    r"(?P<what>Temperature|Voltage|Bias Current|[RT]x Power Current) \[(?P<unit>[A-Za-z]{1,4})\]\s{0,40}: "
    r"(?P<values>[-\d.,NA/]{1,200}) \[(?P<least>-?\d{1,6}(?:\.\d{1,6})?)\.\.(?P<most>-?\d{1,6}(?:\.\d{1,6})?)\]\s*$",
    re.ASCII,
)
_LIGHT = re.compile(
    r"\s*(?:Rcvr|Receiver) signal (?:avg|average) optical power\s?(?:\((?:Channel )?(?P<lane>\d{1,2})\))?\s{0,40}: "
    r"\d{1,4}\.\d{1,6} mW / (?P<value>-?\d{1,3}\.\d{1,4}) dBm\s*$",
    re.ASCII,
)
_RATE = re.compile(
    r"(?P<what>Effective Physical BER|Symbol BER)\s{0,40}: (?P<digits>\d{1,4})E(?P<power>-\d{1,3})\s*$", re.ASCII
)
_READINGS = {
    "temperature": "temperature",
    "voltage": "voltage",
    "bias current": "bias",
    "rx power current": "rx_power",
    "tx power current": "tx_power",
}
# No light at all; the tools print -40 for it.
_DARK_DBM = -30.0
# What a link may have after correction (InfiniBand and Ethernet ask for 1e-12 at the most), and what breaks it.
_MOST_BER, _BROKEN_BER = 1e-12, 1e-8


class OpticsParser:
    """Decodes the reports of one or more modules. Holds whose the present one is."""

    def __init__(self, context: Context) -> None:
        self._node = context.node
        self._name: str | None = None

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of what is not as it should be."""
        if match := _NAME.match(text):
            self._name = match["name"]
            return []
        return list(self._read(text, line))

    def flush(self) -> Iterable[Event]:
        """Nothing is held."""
        return []

    def _read(self, text: str, line: int) -> Iterator[Event]:
        if match := _FLAG.match(text):
            reading = _flagged(match)
            found: dict[str, Attribute] = {"reading": reading, "limit": match["limit"].lower()}
            variant = "alarm" if match["limit"].lower().endswith("alarm") else ""
            yield self._event(variant, f"{reading} {match['limit'].lower()}", match["lane"], found, line)
        elif match := _VALUES.match(text):
            yield from self._outside(match, line)
        elif (match := _LIGHT.match(text)) and float(match["value"]) <= _DARK_DBM:
            found = {"reading": "rx_power", "value": float(match["value"]), "unit": "dBm"}
            yield self._event("alarm", "no light comes in", match["lane"], found, line)
        elif match := _RATE.match(text):
            rate = int(match["digits"]) * 10.0 ** int(match["power"])
            if rate > _MOST_BER:
                yield self._rate(match["what"], rate, line)

    def _outside(self, match: re.Match[str], line: int) -> Iterator[Event]:
        """The lanes whose value is outside of the module's own limits."""
        least, most = float(match["least"]), float(match["most"])
        lanes = match["values"].split(",")[:16]
        for lane, text in enumerate(lanes, start=1):
            if not re.fullmatch(r"-?\d{1,6}(?:\.\d{1,6})?", text):
                continue
            value = float(text)
            if least <= value <= most:
                continue
            reading = _READINGS[match["what"].lower()]
            found: dict[str, Attribute] = {"reading": reading, "value": value, "least": least, "most": most}
            found["unit"] = match["unit"]
            words = f"{reading} is {value:g} {match['unit']}, outside of {least:g} to {most:g}"
            yield self._event("alarm", words, str(lane) if len(lanes) > 1 else None, found, line)

    def _event(self, variant: str, words: str, lane: str | None, found: dict[str, Attribute], line: int) -> Event:
        attributes: dict[str, Attribute] = {**self._own(), **found}
        if lane is not None:
            attributes["lane"] = int(lane)
            words = f"{words} (lane {lane})"
        message = f"The module of {self._name or 'a port'}: {words}"
        event = Event(None, self._node, "optics", "optics_alarm", device=Device(type="hca"), message=message, line=line)
        return with_kind_meaning(replace(event, attributes=attributes), variant)

    def _rate(self, what: str, rate: float, line: int) -> Event:
        attributes: dict[str, Attribute] = {**self._own(), "counter": what.lower().replace(" ", "_"), "value": rate}
        message = f"{what} of {self._name or 'a port'} is {rate:.1e}"
        event = Event(None, self._node, "optics", "bit_errors", device=Device(type="hca"), message=message, line=line)
        return with_kind_meaning(replace(event, attributes=attributes), "error" if rate >= _BROKEN_BER else "")

    def _own(self) -> dict[str, Attribute]:
        return {} if self._name is None else {"name": self._name}


def _flagged(match: re.Match[str]) -> str:
    """Which reading a flag of ethtool is of."""
    if match["way"]:
        return f"{match['way'].lower()}_power"
    if match["part"]:
        return match["part"].lower()
    return "bias" if "bias" in match["what"].lower() else "tx_power"


FORMAT = Format(
    name="optics",
    description="Transceiver or cable of a port: ethtool -m, mlxlink -m -c",
    sample="Rx Power Current [dBm]             : -14.318,-1.906,-2.018,-1.887 [-9.4..6]",
    make=OpticsParser,
    testimony="machine",
    recognises=re.compile(
        r"^\s*(?:[RT]x Power Current|Bias Current|Temperature|Voltage) \[[A-Za-z]{1,4}\]\s{0,40}: [-\d.,NA/]{1,200} \["
        r"|^\s*(?:Laser (?:rx|tx) power|Laser bias current|Module temperature) (?:high|low) (?:alarm|warning)\s"
        r"|^\s*(?:Rcvr|Receiver) signal (?:avg|average) optical power|^Effective Physical BER\s{1,40}: \d",
        re.ASCII,
    ),
)

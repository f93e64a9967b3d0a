"""Vendors' systems of switches: Junos, and those that write %FACILITY-SEVERITY-MNEMONIC (EOS, NX-OS, IOS, IOS-XR).

    2026 Jun 18 03:42:11 leaf07 %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/48 is down (Link failure)
    -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf07/Ethernet1/48"},
        "attributes": {"switch": "leaf07", "name": "Ethernet1/48", "mnemonic": "ETHPORT-IF_DOWN_LINK_FAILURE",
                       "reason": "Link failure"}, ...}

What each mnemonic means is a table: `store/catalogs/switch.csv`.
"""

import re
from dataclasses import dataclass
from functools import cache

from parsers.fabric.switch_system import SwitchSystem, switch_event
from store.catalog_rows import rows
from store.records.event import Event

# Juniper Junos and Dell OS10: links, fans, supplies and temperatures.
#
#     Jun 18 03:42:11 leaf09 mib2d[2097]: SNMP_TRAP_LINK_DOWN: ifIndex 526, ifAdminStatus up(1), ifOperStatus down(2),
#       ifName et-0/0/12                                                                                    (one line)
#     -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf09/et-0/0/12"}, ...}
#
# Dell: `... Dell EMC (OS10) %IFM_OSTATE_DN: Interface operational state is down :ethernet1/1/12`.

_TRAP = re.compile(
    r"SNMP_TRAP_LINK_(?P<state>UP|DOWN): ifIndex \d{1,9}, ifAdminStatus (?P<admin>\w+)\(\d\), "
    r"ifOperStatus \w+\(\d\), ifName (?P<port>[\w./:-]{1,64})",
    re.ASCII,
)
_ALARM = re.compile(
    r"(?P<grade>Major|Minor)? ?[Aa]larm (?P<what>set|cleared)[:,] "
    r"(?:.{0,64}color=(?P<color>\w{1,16}), class=CHASSIS, reason=)?(?P<reason>.{1,200})",
    re.ASCII,
)
_DELL = re.compile(r"%IFM_OSTATE_(?P<state>UP|DN): .{0,80}?: ?(?P<port>[a-z-]{2,16}[\d/:.]{1,24})", re.ASCII)


def decode_junos(switch: str | None, tag: str, message: str) -> Event | None:
    """The event of a message."""
    if tag == "mib2d" and (found := _TRAP.match(message)):
        if "." in found["port"]:  # a unit says what its port says
            return None
        admin = found["admin"] == "down"
        return _junos_updown(switch, found["port"], found["state"] == "UP", admin, message)
    if tag in ("alarmd", "craftd") and (found := _ALARM.match(message)):
        major = "critical" if found["color"] == "RED" or found["grade"] == "Major" else ""
        variant = "over" if found["what"] == "cleared" else major
        return switch_event(switch, "switch_environment", variant, message=message, reason=found["reason"])
    if (found := _DELL.search(message[:400])) and not found["port"].startswith(("vlan", "loopback")):
        return _junos_updown(switch, found["port"], found["state"] == "UP", False, message)
    return None


def _junos_updown(switch: str | None, port: str, up: bool, admin: bool, message: str) -> Event:
    if up:
        return switch_event(switch, "link_up", "fabric", port=port, message=message)
    return switch_event(switch, "link_down", "admin" if admin else "fabric", port=port, message=message)


JUNOS = SwitchSystem(
    name="junos",
    decode=decode_junos,
    recognises=r"\bmib2d(?:\[\d{1,10}\])?: SNMP_TRAP_LINK_"
    r"|\b(?:alarmd|craftd)(?:\[\d{1,10}\])?: (?:(?:Major|Minor) a|A)larm (?:set|cleared)|%IFM_OSTATE_(?:UP|DN): ",
)


MNEMONIC = re.compile(
    r"%(?P<facility>[A-Z][A-Z0-9_]{0,40}(?:-[A-Z0-9_]{1,40}){0,2}?)-[0-7]-(?P<name>[A-Z][A-Z0-9_]{1,80}) ?: ?",
    re.ASCII,
)
_SLOT = re.compile(r"-SLOT\d{1,3}\b")
_PORT = re.compile(
    r"\b(?P<port>(?:Ethernet|Eth|Et|FastEthernet|Fa|GigabitEthernet|Gi|TenGigabitEthernet|TenGigE|Te|TwentyFiveGigE|Twe|"
    r"FortyGig\w{0,8}|Fo|FiftyGigE|HundredGig\w{0,8}|Hu|TwoHundredGig\w{0,8}|FourHundredGig\w{0,8}|FH|EightHundredGig\w{0,8}|"
    r"[Pp]ort-[Cc]hannel|Po|Bundle-Ether|Management|MgmtEth|mgmt|Ma|fc)\d{0,4}(?:/(?:RS?P)?\d{1,4}){0,5}(?:/CPU\d/\d)?)\b",
    re.ASCII,
)
_VIRTUAL = re.compile(r"\b[Ii]nterface (?:Vlan|Loopback|Null|Tunnel|BVI|nve|Vxlan|NVI|Virtual)", re.ASCII)
_MANAGEMENT = re.compile(r"Management|MgmtEth|mgmt|Ma\d")
_STATE = re.compile(r"changed state to (?P<admin>administratively )?(?P<state>[Uu]p|[Dd]own)", re.ASCII)
_DESCRIPTION = re.compile(r"\b[Ii]nterface [\w./-]{1,64} {0,1}\((?:description:)?(?P<text>[^()]{1,128})\)[, ]")
_REASON = re.compile(
    r"\b(?:is down|error detected).{0,4}\((?P<reason>[^()]{1,160})\)|^(?P<error>[\w-]{2,64}) error detected on"
)
_OVER = re.compile(r"\b(?:cleared|restored?|recovered|back to normal|ended|ok)\b", re.IGNORECASE)
_NEIGHBOR = re.compile(
    r"\b(?:neighbor|peer) (?P<peer>[\w.:]{2,64}).{0,120}?(?: new state (?P<new>\w{1,32})|[ ,](?P<now>[Uu]p|[Dd]own)\b)"
)
_PART = re.compile(
    r"\b(?P<part>(?:Power [Ss]upply|PSU|PS|Fan(?: [Mm]odule| [Tt]ray)?|Module|Sensor)[- ]?#?\d{1,3}(?:/\d{1,3})?)\b"
)


@dataclass(frozen=True, slots=True)
class MnemonicRule:
    """A row of the table of mnemonics. A row without a kind means nothing."""

    mnemonic: re.Pattern[str]
    kind: str
    variant: str
    reading: str


@cache
def rules() -> tuple[MnemonicRule, ...]:
    """The shipped table of mnemonics, in order."""
    return tuple(
        MnemonicRule(re.compile(row["mnemonic"], re.ASCII), row["kind"], row["variant"], row["reading"])
        for row in rows("switch")
    )


@cache
def _mnemonic_rule(mnemonic: str) -> MnemonicRule | None:
    found = next((rule for rule in rules() if rule.mnemonic.search(mnemonic)), None)
    return found if found and found.kind else None


def decode_mnemonic(switch: str | None, _tag: str, message: str) -> Event | None:
    """The event of a message that begins with its mnemonic."""
    begin = MNEMONIC.match(message)
    if not begin:
        return None
    mnemonic = f"{_SLOT.sub('', begin['facility'])}-{begin['name']}"
    rule = _mnemonic_rule(mnemonic)
    text = message[begin.end() :].strip()[:1000]
    if rule is None or _VIRTUAL.search(text[:200]):
        return None
    if rule.kind == "bgp_down":
        return _session(switch, mnemonic, text)
    port = _PORT.search(text)
    kind, variant = _read(rule, text, port["port"] if port else "")
    if not kind:
        return None
    description, reason, part = _DESCRIPTION.search(text), _REASON.search(text), _PART.search(text)
    return switch_event(
        switch,
        kind,
        variant,
        port=port["port"] if port and kind != "switch_environment" else None,
        message=text,
        mnemonic=mnemonic,
        description=description["text"] if description else None,
        reason=(reason["reason"] or reason["error"]) if reason else None,
        part=part["part"] if part and not port else None,
    )


def _read(rule: MnemonicRule, text: str, port: str) -> tuple[str, str]:
    """The kind and variant of a text; no kind where it tells nothing."""
    if rule.reading == "updown":
        state = _STATE.search(text)
        if not state or not port:
            return "", ""
        if state["state"].lower() == "up":
            return "link_up", "fabric"
        return "link_down", "admin" if state["admin"] else "management" if _MANAGEMENT.match(port) else "fabric"
    if rule.reading == "clears" and _OVER.search(text):
        return rule.kind, "over"
    if rule.kind.startswith("link_") and not port:
        return "", ""
    if (rule.kind, rule.variant) == ("link_down", "fabric") and _MANAGEMENT.match(port):
        return "link_down", "management"
    return rule.kind, rule.variant


def _session(switch: str | None, mnemonic: str, text: str) -> Event | None:
    """A routing session: EOS names its old and new state, the others say Up or Down."""
    found = _NEIGHBOR.search(text)
    if not found:
        return None
    up = found["new"] == "Established" if found["new"] else found["now"].lower() == "up"
    if found["new"] and not up and "old state Established" not in text:
        return None
    return switch_event(switch, "bgp_up" if up else "bgp_down", message=text, mnemonic=mnemonic, peer=found["peer"])


MNEMONICS = SwitchSystem(
    name="mnemonic",
    decode=decode_mnemonic,
    recognises=r"(?:^|[\s:])%[A-Z][A-Z0-9_]{1,40}(?:-[A-Z0-9_]{1,40}){0,2}?-[0-7]-[A-Z][A-Z0-9_]{1,80} ?: ",
)

"""Systems that name their messages: Arista EOS, Cisco NX-OS, IOS and IOS-XR write %FACILITY-SEVERITY-MNEMONIC: text.

    2026 Jun 18 03:42:11 leaf07 %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/48 is down (Link failure)
    -> {"kind": "link_down", "device": {"type": "port", "uuid": "leaf07/Ethernet1/48"},
        "attributes": {"switch": "leaf07", "name": "Ethernet1/48", "mnemonic": "ETHPORT-IF_DOWN_LINK_FAILURE",
                       "reason": "Link failure"}, ...}

What each mnemonic means is a table: `store/catalogs/switch.csv`.
"""

import re
from dataclasses import dataclass
from functools import cache

from parsers.switch_systems.system import System, told
from store.catalog import rows
from store.event import Event

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
class Rule:
    """A row of the table of mnemonics. A row without a kind means nothing."""

    mnemonic: re.Pattern[str]
    kind: str
    variant: str
    reading: str


@cache
def rules() -> tuple[Rule, ...]:
    """The shipped table of mnemonics, in order."""
    return tuple(
        Rule(re.compile(row["mnemonic"], re.ASCII), row["kind"], row["variant"], row["reading"])
        for row in rows("switch")
    )


@cache
def _rule(mnemonic: str) -> Rule | None:
    found = next((rule for rule in rules() if rule.mnemonic.search(mnemonic)), None)
    return found if found and found.kind else None


def decode(switch: str | None, _tag: str, message: str) -> Event | None:
    """The event of a message that begins with its mnemonic."""
    begin = MNEMONIC.match(message)
    if not begin:
        return None
    mnemonic = f"{_SLOT.sub('', begin['facility'])}-{begin['name']}"
    rule = _rule(mnemonic)
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
    return told(
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


def _read(rule: Rule, text: str, port: str) -> tuple[str, str]:
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
    return told(switch, "bgp_up" if up else "bgp_down", message=text, mnemonic=mnemonic, peer=found["peer"])


SYSTEM = System(
    name="mnemonic",
    decode=decode,
    recognises=r"(?:^|[\s:])%[A-Z][A-Z0-9_]{1,40}(?:-[A-Z0-9_]{1,40}){0,2}?-[0-7]-[A-Z][A-Z0-9_]{1,80} ?: ",
)

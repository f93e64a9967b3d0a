"""Families of kernel messages: the messages in which one driver or subsystem reports a fault."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from store.records.event import Attribute, Device, Event, canonical_pci
from store.records.fault_catalog import kind_meanings


@dataclass(frozen=True, slots=True)
class MessageFamily:
    """A registry entry.

    Attributes:
        name: the family's file.
        signs: every message of the family holds one of these, byte for byte. All the bytes of a log are searched
            for all the signs: one that common lines hold too costs speed. At least four ASCII characters.
        decode: a message without its prefix (time, host, tag) to its event, without time, node and line;
            None for a message that tells no fault.
        merge: where a fault is reported by several messages: the held event of the first and the event of a later one,
            to the first enlarged by the later, or to None where they are two faults.
        heads: kinds that open such a record: they are held until their details have come. Empty: every kind of a
            family that merges.
        tags: programs other than the kernel whose lines are of the family.
    """

    name: str
    signs: tuple[str, ...]
    decode: Callable[[str], Event | None]
    merge: Callable[[Event, Event], Event | None] | None = None
    tags: frozenset[str] = frozenset()
    heads: frozenset[str] = frozenset()


# Messages differ by their numbers: with each digit and each letter of a hexadecimal number as one, few are left. Which
# signs a message may hold is remembered by shape: of so many, none longer, since somebody may send as many as he likes.
_SHAPE = bytes(ord("0") if chr(byte) in "0123456789abcdefABCDEF" else byte for byte in range(256))
SHAPES = 4096
LONGEST_SHAPE = 400


def shape_of(text: str) -> bytes:
    """A text that others with other numbers share."""
    return text.encode("utf-8", "replace").translate(_SHAPE)


# One message that one pattern reads whole; its named groups are the parts of the event.
#
#     MessageForm("Kernel panic - not syncing", r"Kernel panic - not syncing: (?P<reason>.{0,400})", "kernel_panic")
#
# The pattern's named groups are the record: `pci` and `port` place the device, `driver` tells its type, every other
# group is an attribute of its name. What a kind means stands in store/catalogs/kinds.csv.

# A PCI address as the kernel prints it.
PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
# What `dev_printk` puts before a message of a PCI device: its driver and its address.
PCI_DEVICE = rf"(?P<driver>[\w.-]{{1,40}}) {PCI}(?::pcie\d{{1,4}})?: "
# Groups that are numbers; all others are text.
INTEGERS = frozenset(
    (
        *("pid", "uid", "cpu", "socket", "bank", "mc", "queue", "module", "order", "err", "attempt"),
        *("count", "total_events", "working", "disks", "sector", "width_now", "width_capable"),
        *("duration_s", "waited_ms", "rss_kb", "watts", "temp_c"),
    )
)
# Groups that are there or not.
FLAGS = frozenset(("multiple", "exception", "io_wait"))
# What a driver drives; any other device of the bus is `pci`.
_TYPES = {
    "mlx5_core": "hca",
    "mlx4_core": "hca",
    "nvidia": "gpu",
    "amdgpu": "gpu",
    "nvme": "disk",
    "megaraid_sas": "disk",
    "mpt3sas": "disk",
    "bnxt_en": "nic",
    "ice": "nic",
    "i40e": "nic",
    "ixgbe": "nic",
    "ena": "nic",
}


@dataclass(frozen=True, slots=True)
class MessageForm:
    """One message.

    Attributes:
        sign: a literal that it holds.
        text: its pattern, matched from its start.
        kind: what it is; empty for a message that says nothing although a later form would take it.
        device: the type of device it speaks of; empty where `driver` tells.
        variant: the row of the kind.
        by: the attribute whose value is the variant instead, where the kind has such a row.
        words: words of the message, in lower case, that the record writes otherwise.
    """

    sign: str
    text: str
    kind: str
    device: str = "node"
    variant: str = ""
    by: str = ""
    words: Mapping[str, str] = field(default_factory=dict)

    def event(self, match: re.Match[str], message: str) -> Event:
        """The event of a message that the pattern matches."""
        pci = port = None
        attributes: dict[str, Attribute] = {}
        values = match.groups()
        for place, name, read in _parts(match.re):
            if (value := values[place]) is None:
                continue
            text = value.strip()
            if read is not None:
                if text:
                    attributes[name] = read(text)
            elif name == "pci":
                pci = text
            else:
                port = text
        kind_of_device = self.device or _TYPES.get(str(attributes.get("driver", "")), "pci")
        variant = self.variant
        for name in ("state", "fs", self.by):
            if isinstance(value := attributes.get(name), str):
                attributes[name] = self.words.get(value.lower(), value.lower())
        if self.by and (self.kind, word := str(attributes.get(self.by, ""))) in kind_meanings():
            variant = word
        known = kind_meanings()[self.kind, variant]
        return Event(
            None,
            None,
            "kernel",
            self.kind,
            None,
            known.severity,
            known.cause,
            known.action,
            Device(kind_of_device, pci and canonical_pci(pci), None, None, None if port is None else int(port)),
            message.strip() or known.description,
            attributes,
        )


@cache
def _parts(pattern: re.Pattern[str]) -> tuple[tuple[int, str, Callable[[str], Attribute] | None], ...]:
    """Place, name and reader of each named group; no reader of the device's address and port."""
    readers: dict[str, Callable[[str], Attribute] | None] = {"pci": None, "port": None}
    readers |= dict.fromkeys(FLAGS, bool) | dict.fromkeys(INTEGERS, int)
    return tuple((number - 1, name, readers.get(name, str)) for name, number in pattern.groupindex.items())


def decoder(forms: Sequence[MessageForm]) -> Callable[[str], Event | None]:
    """Reads a message by the first form that it is of."""
    patterns = [(form.sign, re.compile(form.text, re.ASCII | re.DOTALL), form) for form in forms]

    def decode(message: str) -> Event | None:
        for sign, pattern, form in patterns:
            if sign in message and (match := pattern.match(message)):
                return form.event(match, message) if form.kind else None
        return None

    return decode


def signs(forms: Sequence[MessageForm]) -> tuple[str, ...]:
    """The signs of some forms, each once."""
    return tuple(dict.fromkeys(form.sign for form in forms))

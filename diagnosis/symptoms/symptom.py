"""A symptom: what is seen of one meaning at one place, however many lines say so."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from diagnosis.graph.place import Place
from store.records.event import Action, Device, Severity

SymptomKind: TypeAlias = Literal[
    "gpu_lost",  # a GPU is gone or dead: Xid 79, no answer
    "gpu_fault",  # its memory or another part of it failed
    "gpu_follow_on",  # channels torn down, a reset asked for: something else was first
    "gpu_program",  # a program's access faulted on it
    "nvlink_fault",
    "nvswitch_fault",
    "link_down",  # a port, a cable or an adapter has no link
    "port_errors",  # counters, bit errors, width, speed
    "optic_sign",  # light, temperature, bias of a module
    "switch_gone",  # a switch answers nobody
    "switch_notice",  # a switch tells that one of its links changed, not which
    "guid_twice",  # two devices of one GUID
    "manager_fault",  # the subnet manager itself
    "pause_storm",  # a port that floods the fabric with pause frames, and those who feel it
    "node_silent",
    "node_reboot",
    "host_fault",  # processor, memory, PCIe, kernel
    "power_sign",
    "heat_sign",
    "storage_complaint",  # a mount, a server of files
    "disk_fault",  # of the node's own
    "driver_fault",
    "service_fault",  # a daemon of the node
    "hang",  # a collective does not end, by those who wait; `points_at` names who is missing where somebody knows
    "rank_missing",  # the rank that they wait for
    "slow",
    "program_error",  # the training program's own report
    "memory_limit",  # a job that wanted more memory than it was given: no part of the machine brings that about
    "memory_exhausted",  # a node without memory: its job, or what else runs there, took it
    "peer_complaint",  # somebody cannot reach somebody: `points_at`
    "corruption",  # numbers that are wrong
]
SYMPTOM_KINDS: tuple[SymptomKind, ...] = get_args(SymptomKind)


@dataclass(frozen=True, slots=True)
class Symptom:
    """Events of one meaning at one place.

    `first` and `last` are by a common clock, each true within `uncertainty_s` seconds. `cured` is when it was over (a
    link that came up, a node that answers), None while it stands or where nobody would say. What comes again after a
    cure has its newest `first`; `relapses` counts the cures before (at most 32), `ever` is its very first moment.
    `newest` is when something was last new: a gauge that goes on showing what it showed moves `last` alone.
    `moments` are the newest times of what several jobs may have met one after the other (at most 32).
    `points_at` are the names that the lines give of others: a file server, a peer's address, a switch. Who complains is
    no suspect for it. `action` is what its code asks for, where the code is another maker's than NVIDIA's. `text` is
    the first line's, `meaning` what its code means, where a table says more than it.
    """

    kind: SymptomKind
    place: Place
    node: str | None
    first: datetime
    last: datetime
    count: int = 1
    severity: Severity = "error"
    code: int | None = None
    action: Action | None = None
    run: str | None = None
    events: tuple[str, ...] = ()
    cured: datetime | None = None
    points_at: tuple[str, ...] = ()
    text: str = ""
    meaning: str = ""
    uncertainty_s: float = 1.0
    device: Device = field(default_factory=Device)
    relapses: int = 0
    ever: datetime | None = None
    newest: datetime | None = None
    moments: tuple[datetime, ...] = ()


def in_order(symptoms: Iterable[Symptom]) -> list[Symptom]:
    """The first first."""
    return sorted(symptoms, key=lambda one: (one.first, one.kind, one.place))

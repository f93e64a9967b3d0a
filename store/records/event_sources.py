"""What the events of a source are worth as evidence: its testimony; whose word a log is: its trust; sets of sources.

Each format registers its testimony (`Format.testimony` in `parsers/formats/`). `make formats` writes them all to
`store/catalogs/sources.csv`, because the store knows no parser; a test holds the table to the registry.
A source that the table does not name (a site's own program that posts events) counts as `machine`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from store.catalog_rows import rows

# machine     observes the hardware itself: the kernel log, an exporter's counters, the subnet manager, a switch
# detector    repeats what others observed: it reads the same kernel log, the same counters. It makes incidents, since
#             it may be the only source at hand; where the observer reports too, the observer names the fault
# alerts      a detector whose alerts are made of what is measured here, and of our own scores: a score that raises an
#             alert must not be raised by it
# scheduler   keeps books of jobs and nodes: a node that is down is the consequence of a fault or an operator's order
# iterations  a training program's iterations, saves and stalls
# saves       directories of checkpoints: saves, whoever wrote them
# starts      starts of a program's processes
# self        a sidecar about itself: that it lost something is no fault of the machine that it watches
Testimony: TypeAlias = Literal["machine", "detector", "alerts", "scheduler", "iterations", "saves", "starts", "self"]
TESTIMONIES: tuple[Testimony, ...] = get_args(Testimony)

_TABLE = {row["source"]: row["testimony"] for row in rows("sources")}
_TESTIMONY_OF = {source: known for source, word in _TABLE.items() for known in TESTIMONIES if known == word}


def _sources(*testimonies: Testimony) -> frozenset[str]:
    return frozenset(source for source, testimony in _TABLE.items() if testimony in testimonies)


# The sources of iterations, the most exact first: a hook times each step, a log's lines are whole seconds. The ledger
# reads each piece of work once (`goodput/log/sources.py`).
RUN_LOGS = ("hook", "otel", "mlgoodput", "training", "dlrover")
# The source of directories of checkpoints.
CHECKPOINTS = "checkpoints"
# Programs about their work. They notice a fault minutes after the machine did, and it is theirs as often as not; the
# ledger and the search for culprits read them by themselves.
WORK = _sources("iterations", "saves", "starts")
DETECTORS = _sources("detector", "alerts")
MACHINES = _sources("machine")
# Sources that report no faults of the machine.
NO_FAULT = WORK | _sources("scheduler", "self")
# Sources that speak of the fabric, of switches, or of many nodes: not one node's word alone.
FLEET_SOURCES = _sources("scheduler", "alerts") | {
    *("iblinkinfo", "ibnetdiscover", "ibqueryerrors", "kubernetes", "opensm", "switch", "ufm"),
}
# What a scheduler says of nodes and jobs, whichever source an event claims: it fills tables of their own. And what came
# of a check that an operator's command made: no node passes its own.
FLEET_KINDS = frozenset({"outage", "job", "check_passed", "check_failed"})
# Sources that say nothing new of a node's health.
NO_SIGN = NO_FAULT | _sources("alerts")


def testimony_of(source: str) -> Testimony:
    """What a source's events are worth as evidence; of one that the table does not name, a machine's."""
    return _TESTIMONY_OF.get(source, "machine")


# Whose word a log is: who can write it, and what such a writer may say. It is a property of the source's registration
# (`collectors/trust.py`), never of a line: a line can only say less.
#
#     may_tell("user", "training")    True
#     may_tell("user", "kernel")      False: any user can print a line that looks like the kernel's

# kernel   the kernel's own log, and nothing else stands in it: its ring, the journal's records of it, a kern.log
# system   root and root's daemons alone can write it: an exporter, the subnet manager's log. Root can write to the
#          kernel's log, too, so it may say whatever the kernel may
# user     whoever runs a job can write it: a training log, a program's output, a syslog file that `logger` reaches
Trust: TypeAlias = Literal["kernel", "system", "user"]
TRUSTS: tuple[Trust, ...] = get_args(Trust)

# Of the kernel's log this table is not asked: it says what the source `kernel` says.
_TESTIMONIES: Mapping[Trust, frozenset[Testimony]] = {
    "kernel": frozenset(),
    "system": frozenset(TESTIMONIES),
    "user": frozenset(("iterations", "saves", "starts")),
}


def may_tell(trust: Trust | None, source: str) -> bool:
    """Whether a log of a trust may give events of a source (a format's name); None: an operator's own file."""
    if trust is None:
        return True
    return testimony_of(source) in _TESTIMONIES[trust] or (trust == "kernel" and source == "kernel")


def narrower(trust: Trust, other: Trust | None) -> Trust:
    """The trust of what two know of its writer: each can only take away."""
    if other is None or other == trust or other == "system":
        return trust
    return other if trust == "system" else "user"

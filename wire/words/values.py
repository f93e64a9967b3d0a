"""How values are said on every page: times, durations, shares, devices, faults and actions in plain words.

Everything here is a pure function of its arguments; an unknown value is a dash, never a 0.
"""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo

from store.plural import plural
from store.visible_text import visible
from wire.cluster import ClusterJson
from wire.events import DeviceJson, EventJson, IncidentJson
from wire.hints import HintJson, RemedyJson

# Worst first: the order of every list of nodes. The words follow a count.
STATES = {
    "faulty": "faulty",
    "out": "out of service",
    "at_risk": "at risk",
    "cordoned": "cordoned by us",
    "silent": "silent",
    "ok": "well",
    "unknown": "unknown to the inventory",
}
ACTIONS = {
    "none": "nothing",
    "watch": "watch it",
    "restart_app": "restart the job",
    "reset_gpu": "reset the GPU",
    "reset_fabric": "reset the NVSwitch fabric",
    "reboot_node": "reboot the node",
    "drain_node": "drain the node",
    "run_diagnostics": "run diagnostics",
    "replace_part": "replace the part",
    "contact_support": "call the vendor",
}
NAMELESS = "which node is not known: the sender named none, send it with node=NAME"
DEVICES = {
    "gpu": "GPU",
    "nvswitch": "NVSwitch",
    "hca": "fabric adapter",
    "nic": "network adapter",
    "port": "port",
    "switch": "switch",
    "npu": "NPU",
    "mlu": "MLU",
    "hpu": "accelerator",
    "cpu": "processor",
    "dimm": "memory module",
    "pci": "PCIe device",
}
HINT_STATES = {
    "shadow": "recorded, never sent",
    "proposed": "waits for approval",
    "approved": "approved, about to be sent",
    "sent": "sent to the scheduler",
    "confirmed": "read back from the scheduler",
    "withdrawn": "taken back",
    "expired": "its time is over",
    "released": "the node is well again",
}
HELD_BACK = "approved, held back by the stop"
# What keeps hints back, by the strongest word of `GET /stop`.
STOPS = {
    "holds": "Stopped: no new hints are sent; releases continue.",
    "all": "Stopped: nothing is sent, not even releases.",
}
# What people made of an incident or a verdict, and what they did to it.
LIVES = {
    "open": "open",
    "acknowledged": "acknowledged",
    "in_repair": "in repair",
    "validated": "repaired and tested",
    "closed": "closed",
}
STEPS = {
    "ack": "acknowledged it",
    "note": "noted",
    "silence": "silenced it",
    "unsilence": "lifted the silence",
    "repair": "sent it to repair",
    "validate": "found it well after repair",
    "close": "closed it",
    "reopen": "opened it again",
}


DASH = "–"
# In place of an age of what is dated later than the page's clock.
CLOCK_AHEAD = "clock ahead"
_MOST_TITLE = 120  # characters of what a cause is called
# In which times are said: a page of the dashboard sets another one.
ZONE: ContextVar[tzinfo] = ContextVar("ZONE", default=UTC)


def shown(text: str) -> str:
    """Text from outside for a place that knows no markup, as a table's cell: what is hidden in it is seen."""
    return visible(" ".join(text.split()))


def local(moment: datetime) -> datetime:
    """The moment in the zone in which times are said."""
    return moment.astimezone(ZONE.get())


def zone_name(moment: datetime | None = None) -> str:
    """`UTC`, `CET`: the name that the zone has at a moment, or now."""
    return local(moment or datetime.now(UTC)).strftime("%Z")


def utc(moment: datetime | None) -> str:
    """2025-03-01 04:05:06 UTC, or in another zone where the page sets one."""
    return DASH if moment is None else local(moment).strftime("%Y-%m-%d %H:%M:%S %Z")


_SKEW = timedelta(minutes=1)


def is_ahead(moment: datetime, now: datetime) -> bool:
    """Whether what has happened is dated later than the page's clock: beside a replay, or by a host that runs ahead."""
    return moment > now + _SKEW


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago something happened: "just now", "3 min ago"; its date where that is ahead of `now`."""
    if moment is None:
        return DASH
    if is_ahead(moment, now):
        return f"at {utc(moment)}"
    seconds = (now - moment).total_seconds()
    return "just now" if seconds < 1.5 else f"{duration(seconds)} ago"


def due(moment: datetime | None, now: datetime) -> str:
    """How far off something is that is to come: "in 5 h"; once it is over, how long ago that was."""
    if moment is None or moment <= now:
        return ago(moment, now)
    return f"in {duration((moment - now).total_seconds())}"


def when(moment: datetime | None, now: datetime) -> str:
    """Both: "3 min ago · 04:05:06", with the date where it is not today's, and the year where it is not this one."""
    if moment is None:
        return DASH
    return f"{CLOCK_AHEAD if is_ahead(moment, now) else ago(moment, now)} · {_clock(moment, now)}"


def _clock(moment: datetime, now: datetime) -> str:
    then, today = local(moment), local(now)
    shape = "%H:%M:%S" if then.date() == today.date() else "%b %d %H:%M"
    return then.strftime(shape if then.year == today.year else "%Y-%m-%d %H:%M")


def due_at(moment: datetime | None, now: datetime) -> str:
    """As `at`, of what is to come: "in 5.0 h · 08:12:00 UTC"."""
    return DASH if moment is None else f"{due(moment, now)} · {_clock(moment, now)} {zone_name(moment)}"


def at(moment: datetime | None, now: datetime) -> str:
    """The same with the zone's name, for a sentence: "3 min ago · 04:05:06 UTC"."""
    return DASH if moment is None else f"{when(moment, now)} {zone_name(moment)}"


_YEAR_S = 365.25 * 86_400


def duration(seconds: float | None) -> str:
    """40 s, 3 min, 5.2 h, 10.9 d, 617 d, 6.4 years: the unit that a person would choose."""
    if seconds is None or not seconds >= 0:  # nothing lasts less than no time: who says so has two clocks
        return DASH
    if seconds >= 2 * _YEAR_S:
        return f"{seconds / _YEAR_S:,.1f} years"
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:,.1f} d" if seconds < 99.95 * 86_400 else f"{seconds / 86_400:,.0f} d"
    if seconds >= 3_570:  # what would read as 60 min
        return f"{seconds / 3600:.1f} h" if seconds < 10 * 3600 else f"{seconds / 3600:.0f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 59.5 else f"{seconds:.0f} s"


def share(value: float | None, digits: int = 1) -> str:
    """0.931 -> "93.1 %"."""
    return DASH if value is None else f"{value * 100:.{digits}f} %"


def risk(value: float | None) -> str:
    """A probability as people say it: "< 0.1 %", "0.4 %", "4 %", "63 %", "> 99 %"; nothing is certain."""
    if value is None or value != value:  # what is no number is not known
        return DASH
    if value < 0.001:
        return "< 0.1 %"
    if value > 0.99:
        return "> 99 %"
    # A rate that was rounded to its interval is shown no sharper: 4 %, not 4.0 %.
    return share(value, 0 if value >= 0.1 or abs(value * 100 - round(value * 100)) < 1e-9 else 1)


def count(value: float | None) -> str:
    """12500 -> "12,500"."""
    return DASH if value is None else f"{value:,.0f}"


def many(value: int, one: str, more: str | None = None) -> str:
    """1 -> "1 node", 2 -> "2 nodes"."""
    return f"{value:,} {plural(value, one, more)}"


def device(where: DeviceJson | None, brief: bool = False, name: str | None = None) -> str:
    """GPU 3 (0000:0f:00.0), port 12 of 0x248a..., disk nvme0; `brief` leaves out an address where a number says it too.

    Args:
        name: what the device is called, where it has a name.
    """
    if where is None:
        return DASH
    if where.type == "node":
        return "whole node"
    kind, address = DEVICES.get(where.type, where.type), where.pci or where.uuid
    own = None if name is None or name in (address or "") else name
    if where.type in ("port", "switch", "hca") and where.port is not None:
        place, whole = f"port {where.port}", own if where.type == "hca" and own else address
        return place if brief or not whole else f"{place} of {whole}"
    kind = f"{kind} {own}" if own else kind
    number = "" if where.index is None else f" {where.index}"
    link = "" if where.port is None else f" link {where.port}"
    if not address or (brief and (number or own)):
        return f"{kind}{number}{link}"
    return f"{kind}{number}{link} ({address})" if number or link or own else f"{kind} {address}"


def name_of(event: EventJson) -> str | None:
    """The name of an event's device, where it has one."""
    found = event.attributes.get("name") or event.attributes.get("dimm")
    return None if found is None else str(found)


def what(fault: EventJson | IncidentJson) -> str:
    """A fault in words: "Xid 79, driver can no longer reach the GPU over PCIe", "an InfiniBand port is down"."""
    return coded(fault.kind, fault.code, fault.meaning or "")


# Codes of other makers than NVIDIA, as their tools write them.
_CODES = {"ascend_fault": "fault {:08X}", "gpu_afid": "AFID {}", "mlu_xid": "MLU Xid {}"}


def coded(kind: str, code: int | None, description: str) -> str:
    """What a kind and code mean, in words: as `what` says it of a fault."""
    meaning = _lowered(description)
    if kind in ("xid", "sxid") and code is not None:
        name = f"{'SXid' if kind == 'sxid' else 'Xid'} {code}"
        return f"{name}, {meaning}" if meaning else name
    if kind in _CODES and code is not None:
        name = _CODES[kind].format(code)
        return f"{name}, {meaning}" if meaning else name
    return meaning or kind.replace("_", " ")


def _lowered(sentence: str) -> str:
    """A sentence to stand within another: its first letter small, unless its first word is an abbreviation."""
    first = sentence.partition(" ")[0]
    kept = any(letter.isupper() or letter.isdigit() for letter in first[1:])
    return sentence if kept else sentence[:1].lower() + sentence[1:]


def event_text(fault: EventJson | IncidentJson) -> str:
    """A fault in words and in its own: "GPU memory errors that were corrected: rose by 13"."""
    message = fault.message.removeprefix(fault.kind).strip()
    if not message or (fault.meaning or "").startswith(message):
        return what(fault)
    return f"{what(fault)}: {message}"


def is_held_back(state: str, action: str, stop: str) -> bool:
    """Whether a hint is approved and not sent, because a stop keeps it back: `holds` lets releases go."""
    return state == "approved" and (stop == "all" or (stop != "none" and action != "release"))


def hint_state(state: str, action: str, stop: str) -> str:
    """A hint's state in words, with what a stop makes of it."""
    return HELD_BACK if is_held_back(state, action, stop) else HINT_STATES.get(state) or state.replace("_", " ")


def action(name: str, device: str = "gpu") -> str:
    """What to do, in words, with a device of a type: "reset the NPU"."""
    if name == "reset_gpu" and device in ("npu", "mlu", "hpu"):
        return f"reset the {DEVICES[device]}"
    return ACTIONS.get(name, name.replace("_", " "))


def is_nameless(incident: IncidentJson) -> bool:
    """Whether a fault is one of a node that its sender did not name; switches, ports and programs are of none."""
    is_of_node = incident.cause in ("hardware", "driver", "host") and incident.device.type not in ("switch", "port")
    return incident.node is None and is_of_node


def place(incident: IncidentJson) -> str:
    """The node of a fault, or that nobody named it; empty for a fault of no node."""
    return incident.node or ("node not named" if is_nameless(incident) else "")


def remedy(found: RemedyJson, device: str = "gpu") -> str:
    """What to do, in words, about a fault of a type of device; where the cause is no part of the node, to what."""
    told = action(found.action, device)
    return f"{told} ({shown(found.title)[:_MOST_TITLE]})" if found.elsewhere else told


def to_do(incident: IncidentJson) -> str:
    """What to do about a fault, in words: where its cause is elsewhere, to what; where nobody named its node, that too.

    Every page, row and card says it in this one way: who shows `action` alone may send somebody to the wrong machine.
    """
    kind = incident.device.type
    told = action(incident.action, kind) if incident.remedy is None else remedy(incident.remedy, kind)
    if incident.remedy is None and incident.action == "none" and incident.severity == "fatal":
        told = "look at it"  # nobody has said what to do
    return f"{told} ({NAMELESS})" if is_nameless(incident) else told


def hint_ground(hint: HintJson, incident: IncidentJson) -> str:
    """What a hint was made for, as seen from a fault of its node: this fault, an earlier one, another, or the risk."""
    before = hint.created is not None and hint.created < incident.start
    if hint.evidence.get("incident") == incident.id:
        return "this fault; it stood before, for another" if before else "this fault"
    ground = "fault of the node" if hint.evidence.get("incident") else "risk or order"
    return f"an earlier {ground}" if before else f"another {ground}"


def state(name: str) -> str:
    """A node's state in words."""
    return STATES.get(name, name.replace("_", " "))


def _not_well(cluster: ClusterJson, as_text: Callable[[str], str]) -> dict[str, int]:
    """How many nodes are not well, by the words of their states, the worst first; a node of no state is not well."""
    names = [*STATES, *(name for name in cluster.states if name not in STATES)]
    found = {as_text(state(name)): cluster.states.get(name, 0) for name in names if name != "ok"}
    found["in a state not known"] = cluster.nodes - sum(cluster.states.values())
    return {name: n for name, n in found.items() if n > 0}


def blind(cluster: ClusterJson) -> str:
    """That nobody knows how the nodes are, since when, and where to look first."""
    if cluster.heard_until is None:
        return "No node was ever heard of: how they are is not known. Start `foreshock sidecar` on the nodes."
    return (
        f"Nothing was heard of the nodes since {utc(cluster.heard_until)} ({ago(cluster.heard_until, cluster.now)}): "
        "how they are now is not known. See the sidecars and the network to this server on the page Collection."
    )


def replay_over(cluster: ClusterJson) -> tuple[str, str] | None:
    """That a replay has ended, and what comes then; None where there is none, or it goes on."""
    replay = cluster.replay
    if replay is None or cluster.now < replay.end:
        return None
    then = "Start the demo anew to see it again."
    if replay.again is not None:
        then = f"It begins again by itself at {local(replay.again):%H:%M:%S %Z}."
    return f"The replay ended at {utc(replay.end)}, by its own clock: nothing moves any more.", then


def headline(cluster: ClusterJson, as_text: Callable[[str], str] = shown) -> tuple[str, str]:
    """The answer first: how bad it is (`error`, `warning`, `success`, `info`), and a sentence that says it.

    Args:
        as_text: makes text from outside safe for where it is shown.
    """
    if not cluster.nodes:
        return (
            "info",
            "No node is known yet. Start `foreshock sidecar` on the nodes, or load an archive with `foreshock ingest`.",
        )
    bad = _not_well(cluster, as_text)
    said = [f"{n:,} {'node ' if n == 1 else 'nodes '}{name}" for name, n in list(bad.items())[:1]]
    said += [f"{n:,} {name}" for name, n in list(bad.items())[1:]]
    well = "The one node is well" if cluster.nodes == 1 else f"All {cluster.nodes:,} nodes are well"
    text = ", ".join(said) or well
    below = cluster.goodput is not None and cluster.target is not None and cluster.goodput < cluster.target
    if cluster.run and cluster.goodput is not None:
        text += f"; run {as_text(cluster.run)} at {share(cluster.goodput)} goodput"
        text += f", target {share(cluster.target, 0)}" if cluster.target is not None else ""
    level = "error" if cluster.states.get("faulty") else "warning" if bad or below else "success"
    return level, f"{text}."

"""A verdict of what a suspect explains: its names, its nodes and jobs, and the evidence in an operator's words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from diagnosis.causes.cause_catalog import STOP
from diagnosis.causes.relevance import CURED, OF_NODE, SURVIVABLE, SURVIVED
from diagnosis.causes.stop import is_untold
from diagnosis.graph.place import Place
from store.plural import many, plural
from store.records import fault_catalog
from store.records.event import Action, Cause, Device
from store.records.verdict import CauseClass, Verdict, VerdictEvidence

if TYPE_CHECKING:
    from diagnosis.causes.effects import Effect, ExcusedWork, SceneEffects
    from diagnosis.causes.scene import Scene
    from diagnosis.causes.suspects import Hit, Suspect
    from diagnosis.causes.weighing import Account, SuspectFinding
    from diagnosis.symptoms.symptom import Symptom

# Event ids of one piece of evidence, names of a verdict, incidents of it.
_MOST_EVENTS, _MOST_NAMES, _MOST_INCIDENTS = 10, 16, 1000
_NEAR = timedelta(minutes=1)
_CAUSES: dict[CauseClass, Cause] = {
    **dict.fromkeys(("gpu", "nvlink", "nvswitch"), "hardware"),
    **dict.fromkeys(("nic", "cable", "optic", "port", "switch"), "fabric"),
    **dict.fromkeys(("node", "rack", "power", "cooling"), "host"),
    "storage": "storage",
    **dict.fromkeys(("driver", "firmware"), "driver"),
    **dict.fromkeys(("application", "job"), "application"),
    "planned": "unknown",
    "unknown": "unknown",
}
_ACTIONS: dict[CauseClass, Action] = {
    **dict.fromkeys(("gpu", "nvlink", "nvswitch", "node", "nic"), "drain_node"),
    **dict.fromkeys(("cable", "port", "switch", "rack", "power", "cooling"), "run_diagnostics"),
    "optic": "replace_part",
    **dict.fromkeys(("storage", "driver", "firmware"), "contact_support"),
    **dict.fromkeys(("application", "job"), "restart_app"),
    "planned": "none",
    "unknown": "run_diagnostics",
}
# Of what is likelier something else nothing is taken out of service: it is looked at.
LIKELY = 0.5
_LOOK: dict[CauseClass, Action] = {**dict.fromkeys(("application", "job"), "restart_app"), "planned": "none"}
# What shows in the work alone: no part has told of a fault, so that it is looked for first.
_OF_WORK_ALONE = frozenset({"rank_missing", "slow", "memory_exhausted", "storage_complaint"})
# What is to be done in which order.
_REMEDIES: dict[CauseClass, str] = {"optic": "; clean and reseat the module, then replace it, then its cable"}
# What an operator calls a symptom: after a number, `3 of 8 ...`.
_SHOWS: dict[str, str] = {
    "gpu_lost": "lost a GPU",
    "gpu_fault": "had a GPU fault",
    "gpu_follow_on": "tore down GPU channels",
    "gpu_program": "had a program fault on a GPU",
    "nvlink_fault": "had an NVLink fault",
    "nvswitch_fault": "had an NVSwitch fault",
    "link_down": "lost a link",
    "port_errors": "had link errors",
    "optic_sign": "had a bad optic",
    "switch_gone": "could not be reached",
    "switch_notice": "told of a changed link",
    "guid_twice": "shared a GUID",
    "manager_fault": "upset the subnet manager",
    "pause_storm": "paused the fabric",
    "node_silent": "fell silent",
    "node_reboot": "rebooted",
    "host_fault": "had a host fault",
    "power_sign": "told of power",
    "heat_sign": "got hot",
    "storage_complaint": "complained of storage",
    "disk_fault": "had a disk fault",
    "driver_fault": "had a driver fault",
    "service_fault": "lost a service",
    "hang": "waited without end",
    "rank_missing": "did not come where others wait",
    "slow": "were slow",
    "program_error": "reported a program error",
    "memory_limit": "killed a program at its memory limit",
    "memory_exhausted": "ran out of memory",
    "peer_complaint": "could not reach a peer",
    "corruption": "computed wrong numbers",
}
_OF_GPU: dict[str, str] = {"gpu_lost": "was lost", "host_fault": "reported a fault"}
# The Xid by which the driver says that it wants a reset or a reboot.
_RECOVERY = 154
_UNITS: dict[str, str] = {"switch": "links", "node": "parts", "nvswitch": "GPUs"}


def verdict_of(finding: SuspectFinding, probability: float, scene: Scene) -> Verdict:
    """The verdict on one suspect."""
    account = finding.account
    suspect = account.suspect
    effects = account.effects()
    own = [hit.effect for hit, _ in account.parts] or effects
    symptoms = [symptom for effect in own for symptom in effect.symptoms]
    node = None if suspect.kind in ("application", "job", "storage", "driver", "firmware") else _node(suspect, scene)
    felt = [effect for effect, _ in account.jobs if effect.domain is not None]
    nodes = _nodes(suspect, [*own, *felt], node, scene)
    told = {effect.run for effect, _ in account.jobs if effect.run is not None}
    runs = sorted(run for run in told if not is_untold(run))
    lead = _lead(account)
    return Verdict(
        cause_class=suspect.kind,
        name=suspect.place.name,
        probability=round(probability, 4),
        cause=_cause(suspect, lead),
        action=_action(suspect, lead) if probability >= LIKELY else _LOOK.get(suspect.kind, "run_diagnostics"),
        since=account.since or min(effect.first for effect in effects),
        reason=_reason(account, lead),
        device=_device(suspect, lead, scene),
        node=node,
        names=_names(suspect, scene),
        nodes=nodes,
        jobs=tuple(runs),
        incidents=_incidents(symptoms, scene),
        evidence_for=tuple(_evidence_for(account)),
        evidence_against=tuple(_evidence_against(account, scene)),
        last=max(effect.last for effect in effects),
        newest=_newest(effects),
    )


def _newest(effects: Iterable[Effect]) -> datetime:
    """When the last of its signs was new. Where there is worse, a warning is none, and what programs work on after."""
    effects = list(effects)
    grave = [effect for effect in effects if not effect.is_mild() and effect.kind not in SURVIVABLE]
    signs = ([one.newest or one.last for one in effect.symptoms] or [effect.last] for effect in grave or effects)
    return max(moment for moments in signs for moment in moments)


def _node(suspect: Suspect, scene: Scene) -> str | None:
    place = suspect.place
    if suspect.kind in ("switch", "rack", "power", "cooling"):
        return None
    if suspect.kind == "cable":
        ends = (_node_of_part(Place(kind, end), scene) for end in place.name.split("--") for kind in ("nic", "port"))
        return next((node for node in ends if node is not None), None)
    if place.kind == "port":
        far = scene.graph.far_end(place)
        return None if far is None else _node_of_part(far, scene)
    return _node_of_part(place, scene)


def _node_of_part(place: Place, scene: Scene) -> str | None:
    found = scene.graph.node_of(place)
    if found is None and place.kind in ("gpu", "nic", "nvlink", "nvswitch", "optic") and "/" in place.name:
        known = scene.graph.place_of(place.name.partition("/")[0], "switch")
        found = None if known is not None else place.name.partition("/")[0]
    return found


def _nodes(suspect: Suspect, own: Iterable[Effect], node: str | None, scene: Scene) -> tuple[str, ...]:
    """The nodes that hang below a cause or felt it."""
    found = {name for effect in own for name in effect.nodes}
    if suspect.kind in ("switch", "power", "cooling", "rack", "nvswitch"):
        found |= set(scene.graph.nodes_below(suspect.place))
    if node is not None:
        found.add(node)
    return tuple(sorted(found))


def _lead(account: Account) -> Symptom | None:
    """The symptom that says most of a suspect, the first of those; what another fault led to only where it is alone."""

    def says(part: tuple[Hit, float]) -> tuple[bool, float, float]:
        effect = part[0].effect
        return effect.kind != "gpu_follow_on", part[1], -effect.first.timestamp()

    best = max(account.parts, key=says, default=None)
    if best is not None and best[0].effect.symptoms:
        return best[0].effect.symptoms[0]
    return next((effect.symptoms[0] for effect, _ in account.jobs if effect.symptoms), None)


def _cause(suspect: Suspect, lead: Symptom | None) -> Cause:
    if suspect.kind == "node" and lead is not None:
        return {"disk_fault": "storage", "driver_fault": "driver", "link_down": "fabric"}.get(lead.kind, "host")  # type: ignore[return-value]
    return _CAUSES[suspect.kind]


def _action(suspect: Suspect, lead: Symptom | None) -> Action:
    if lead is not None and lead.kind in _OF_WORK_ALONE and _ACTIONS[suspect.kind] == "drain_node":
        return "run_diagnostics"
    if suspect.kind in ("gpu", "nvlink") and lead is not None and lead.action is not None:
        return lead.action
    if suspect.kind in ("gpu", "nvlink") and lead is not None and lead.code is not None:
        known = fault_catalog.xid(lead.code)
        if known is not None:  # where no program is to blame, to start it again is no remedy
            return "run_diagnostics" if lead.kind == "gpu_program" else known.action
    return _ACTIONS[suspect.kind]


def _device(suspect: Suspect, lead: Symptom | None, scene: Scene) -> Device:
    guid = next((name for name in _names(suspect, scene) if name.lower().startswith("0x")), None)
    if suspect.kind == "switch":
        return Device(type="switch", uuid=guid or suspect.place.name)
    if suspect.kind in ("gpu", "nvlink", "nic", "port", "cable", "optic", "nvswitch") and lead is not None:
        return lead.device
    return Device()


def _names(suspect: Suspect, scene: Scene) -> tuple[str, ...]:
    """A place's aliases; a cable's are those of its ends, and of the one switch where nobody knows its ends."""
    graph = scene.graph
    names = dict.fromkeys(graph.names_of(suspect.place))
    if suspect.kind == "cable":
        for end in suspect.place.name.split("--"):
            for kind in ("nic", "port", "switch"):
                place = Place(kind, end)
                if graph.knows(place):
                    names.update(dict.fromkeys((*graph.names_of(place), end.partition("/")[0])))
    return tuple(names)[:_MOST_NAMES]


def _incidents(symptoms: Sequence[Symptom], scene: Scene) -> tuple[str, ...]:
    """The incidents that a cause accounts for: those whose first event it has, and those of its places and times."""
    events = {ident for symptom in symptoms for ident in symptom.events}
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for symptom in symptoms:
        if symptom.node is not None:
            spans.setdefault(symptom.node, []).append((symptom.first - _NEAR, symptom.last + _NEAR))
    found = []
    for incident in scene.incidents:
        of_nodes = incident.nodes or ((incident.node,) if incident.node is not None else ())
        is_near = any(
            incident.start <= until and incident.end >= since
            for node in of_nodes
            for since, until in spans.get(node, ())
        )
        if incident.id in events or is_near:
            found.append(incident.id)
    return tuple(found[:_MOST_INCIDENTS])


def _reason(account: Account, lead: Symptom | None) -> str:
    """One sentence."""
    kind, place = account.suspect
    if account.p_value is not None:
        struck, all_of = account.others
        return (
            f"{account.struck} of {many(account.units, 'node')} with {kind} {place.name} fail alike, "
            f"{struck} of {all_of} of the others (chance {account.p_value:.1g})"
        )
    if account.units > 1 and account.struck > 1:
        return f"{_group_words(account)}: {_what(account.suspect)}"
    text = "" if lead is None else lead.meaning or lead.text[:160]
    said = f": {text}" if text else ""
    return f"{_what(account.suspect)}{said}{_REMEDIES.get(kind, '')}"


def _what(suspect: Suspect) -> str:
    kind, place = suspect
    if kind == "application":
        return f"the program of {place.name} failed by itself"
    if kind == "cable" and "/" not in place.name:
        return f"one cable of switch {place.name}; its other end was not heard: look which port is down"
    return f"{kind} {place.name}"


def _group_words(account: Account) -> str:
    shared = [hit for hit, _ in account.parts if hit.where in ("below", "named")]
    kind = Counter(hit.effect.kind for hit in shared).most_common(1)[0][0] if shared else ""
    units = _UNITS.get(account.suspect.kind, "nodes")
    when = f"within {account.spread_s:.0f} s" if account.spread_s >= 1.0 else "at once"
    shows = "were lost" if kind == "gpu_lost" and units != "nodes" else _SHOWS.get(kind, kind)  # the part is the GPU
    if account.is_told:
        return f"{account.struck} of {account.units} {units} {_below(account.suspect)} {shows} {when}"
    shows = shows.replace("were ", "was ", 1) if account.struck == 1 else shows
    return f"{_count(account.struck, units)} {_below(account.suspect)} {shows} {when}"


def _count(number: int, units: str) -> str:
    return many(number, units.removesuffix("s"))


def _below(suspect: Suspect) -> str:
    """A node has its parts; what nodes share has them below it."""
    return "of it" if suspect.kind == "node" else "below it"


def _evidence_for(account: Account) -> Iterable[VerdictEvidence]:
    """Reasons for a suspect, the strongest first."""
    found = []
    shared = [(hit, odds) for hit, odds in account.parts if hit.where in ("below", "named", "rate")]
    if shared:
        text = _reason(account, None) if account.p_value is not None else _group_words(account)
        found.append(_evidence(text, [hit.effect for hit, _ in shared], sum(odds for _, odds in shared)))
    by_job = {id(effect): odds for effect, odds in account.jobs}
    for hit, odds in account.parts:
        if hit.where not in ("below", "named", "rate"):  # what is of the job as well is said once
            found.append(_evidence(_own_words(hit), [hit.effect], odds + by_job.pop(id(hit.effect), 0.0)))
    for effect, odds in account.jobs:
        if id(effect) in by_job:
            found.append(_evidence(_job_words(effect), [effect], odds))
    return sorted(found, key=lambda one: -one.weight)[:_MOST_NAMES]


def _evidence(text: str, effects: Sequence[Effect], weight: float) -> VerdictEvidence:
    events = dict.fromkeys(ident for effect in effects for symptom in effect.symptoms for ident in symptom.events)
    return VerdictEvidence(text, tuple(events)[:_MOST_EVENTS], round(weight, 2))


def _own_words(hit: Hit) -> str:
    effect = hit.effect
    count = sum(symptom.count for symptom in effect.symptoms)
    times = f", {count} times" if count > 1 else ""
    text = next((symptom.text for symptom in effect.symptoms if symptom.text), "")
    where = effect.place.words()
    shows = _shows(effect)
    return f"{where} {shows}{times}" + (f": {text[:160]}" if text else "")


def _shows(effect: Effect) -> str:
    """What a device did, in words: of a part what `_SHOWS` says of its host."""
    if effect.place.kind == "gpu" and effect.kind in _OF_GPU:
        return _OF_GPU[effect.kind]
    if effect.symptoms and effect.symptoms[0].code == _RECOVERY:
        return "asked to be recovered"
    return _SHOWS.get(effect.kind, effect.kind)


def _job_words(effect: Effect) -> str:
    if effect.kind == "stop":
        return f"job {effect.run} stopped: its last progress was at {effect.first:%Y-%m-%d %H:%M:%S} UTC"
    if effect.domain is not None:
        gpus = sum(symptom.count for symptom in effect.symptoms)
        felt = f"felt by {many(len(effect.nodes), 'node')} of NVLink domain {effect.domain}"
        return f"{felt}: {many(gpus, 'line')} of their GPUs"
    count = len(effect.nodes)
    nodes = f" on {many(count, 'node')}" if count else ""
    text = next((symptom.text for symptom in effect.symptoms if symptom.text), "")
    return f"job {effect.run}{nodes}: {text[:160] or _SHOWS.get(effect.kind, effect.kind)}"


def _evidence_against(account: Account, scene: Scene) -> Iterable[VerdictEvidence]:
    """What speaks against: parts that are fine, recovery, the time."""
    fine = account.units - account.struck
    if fine > 0 and account.p_value is None:
        units = _UNITS.get(account.suspect.kind, "nodes")
        known = f"its other {fine} {units} are fine"
        text = known if account.is_told else f"nobody tells how many {units} it has; {account.units} are assumed"
        yield VerdictEvidence(text, (), round(-account.cover, 2))
    cured = [hit.effect for hit, _ in account.parts if hit.effect.cured is not None]
    if cured:
        longest = max((effect.cured - effect.last).total_seconds() for effect in cured if effect.cured is not None)
        yield _evidence(
            f"{len(cured)} of {many(len(account.parts), 'sign')} {plural(len(cured), 'was', 'were')} over after "
            f"{longest:.0f} s",
            cured,
            -math.log(CURED),
        )
    stop, word = scene.stop, scene.failed_node()
    if word is not None and account.suspect.kind == "application":
        yield VerdictEvidence(f"the scheduler says that a node failed: {word}", (), round(-math.log(OF_NODE), 2))
    if stop is not None and stop.run is not None and account.since is not None:
        before = (stop.last_work - account.since).total_seconds()
        if before > 60.0:
            yield VerdictEvidence(
                f"it began {before:.0f} s before the last progress", (), round(-math.log(SURVIVED), 2)
            )


def planned_verdicts(seen: SceneEffects, scene: Scene) -> list[Verdict]:
    """What planned work accounts for: no fault, nothing to do."""
    found = []
    for reason, work in sorted(seen.excused.items()):
        nodes = tuple(sorted({outage.node for outage in work.outages}))
        since = min(outage.start for outage in work.outages)
        who = next((outage.user for outage in work.outages if outage.user), None)
        text = f"{many(len(work.symptoms), 'sign')} on {many(len(nodes), 'node')} "
        text += f"{plural(len(work.symptoms), 'is', 'are')} of planned work: {reason}"
        if work.ended is not None:
            text = f"{work.ended.run} was ended as {many(len(nodes), 'node was', 'nodes were')} taken out of service"
            text += f": {reason}"
        effects = [ident for symptom in work.symptoms for ident in symptom.events]
        found.append(
            Verdict(
                cause_class="planned",
                name=reason or "planned work",
                probability=_planned_share(work, scene),
                cause="unknown",
                action="none",
                since=since,
                reason=text + (f" ({who})" if who else ""),
                nodes=nodes,
                names=(reason,) if reason else (),
                jobs=(work.ended.run,) if work.ended is not None and work.ended.run else (),
                incidents=_incidents(work.symptoms, scene),
                evidence_for=(VerdictEvidence(text, tuple(effects[:_MOST_EVENTS]), 3.0),),
                last=max((*(symptom.last for symptom in work.symptoms), *_end_of(work))),
            )
        )
    return found


def _end_of(work: ExcusedWork) -> list[datetime]:
    return [] if work.ended is None else [work.ended.end]


# Planned work that is on, and how fast what is over ceases to matter; where a job stopped, it is seldom the answer.
_PLANNED, _PLANNED_OVER, _PLANNED_HALF_LIFE_S, _PLANNED_ELSEWHERE = 0.95, 0.8, 3600.0, 0.1
# Work on one node or two explains little of what a cluster shows.
_PLANNED_FEW = {1: 0.3, 2: 0.5}


def _planned_share(work: ExcusedWork, scene: Scene) -> float:
    """How likely it is that what is seen now is of this work."""
    is_on = any(outage.end is None or outage.end > scene.now for outage in work.outages)
    last = max((*(symptom.cured or symptom.last for symptom in work.symptoms), *_end_of(work)))
    age = max(0.0, (scene.now - last).total_seconds())
    share = (_PLANNED if is_on else _PLANNED_OVER) * math.exp2(-age / _PLANNED_HALF_LIFE_S)
    if work.ended is not None:
        return round(share, 4)
    share *= _PLANNED_FEW.get(len({outage.node for outage in work.outages}), 1.0)
    stop = scene.stop
    if stop is not None and stop.run is not None:
        inside = stop.nodes is None or any(outage.node in stop.nodes for outage in work.outages)
        share *= 1.0 if inside else _PLANNED_ELSEWHERE
    return round(share, 4)


# A job that made no progress for so long before somebody ended it did hang.
_HUNG_S = 600.0


def _worked_to_its_end(scene: Scene, seen: SceneEffects) -> bool:
    """Whether the stopped job complained of nothing and got on until its end."""
    stop = scene.stop
    if stop is None or (stop.end - stop.last_work).total_seconds() > _HUNG_S:
        return False
    return all(effect.run != stop.run or effect.kind == STOP for effect in seen.effects)


def unknown_verdict(
    scene: Scene, seen: SceneEffects, weighted: Sequence[tuple[SuspectFinding, float]], planned: Sequence[Verdict]
) -> Verdict:
    """That no cause known here explains it, with the leads that there are."""
    left = math.prod(1.0 - verdict.probability for verdict in planned)
    for finding, probability in weighted:
        if finding.is_cause:
            left *= 1.0 - probability
    known = [*(probability for _, probability in weighted), *(verdict.probability for verdict in planned)]
    rest = max(0.0, 1.0 - max(known, default=0.0))
    first = min((effect.first for effect in seen.effects), default=scene.now)
    since = scene.stop.last_work if scene.stop is not None else first
    leads = [finding.account.suspect for finding, _ in weighted[:3]]
    named = f"; leads: {', '.join(_what(lead) for lead in leads)}" if leads else ""
    word = scene.failed_node()
    said = "" if word is None else f"; the scheduler says that a node failed ({word})"
    taken_off = scene.taken_off()
    if taken_off is not None:
        said = f"; the scheduler says that it was ended, and not that it failed ({taken_off})"
    nodes: tuple[str, ...] = ()
    runs = () if scene.stop is None or scene.stop.run is None else (scene.stop.run,)
    return Verdict(
        cause_class="unknown",
        name="unknown",
        probability=round(min(rest, max(0.001, left)), 4),
        cause="unknown",
        action="none" if taken_off is not None and _worked_to_its_end(scene, seen) else "run_diagnostics",
        since=since,
        reason=f"no cause that is known here explains it{said}{named}",
        nodes=nodes,
        jobs=runs,
    )

"""What is to be explained: symptoms, put together where they are one effect, less those that planned work excuses.

- What a device shows is an effect of its place. What a job shows (ranks that wait, a program that ends) is one effect
  of the job, however many of its nodes say so: they all say it because one stopped.
- Who complains of another one is no suspect for it: the effect is of whom the line names.
- A node that the scheduler marked down without a word of its own fell silent.
- What a node shows while an operator holds it for planned work is excused.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from diagnosis.causes.cause_catalog import STOP, cause_tables
from diagnosis.causes.scene import MARKED_DOWN, Scene, SceneJob
from diagnosis.causes.stop import Stoppage, untold_job
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.symptom import Symptom, SymptomKind
from store.records.event import Cause
from store.records.outage import Outage

# Effects of a job as a whole.
OF_JOBS = frozenset(
    {
        *("hang", "program_error", "memory_limit", "memory_exhausted", "peer_complaint", "gpu_program"),
        *("gpu_follow_on", STOP),
    }
)
# Those of them that a program alone brings about, unlike what it says of itself.
_OF_PROGRAMS = frozenset({"gpu_program", "memory_limit"})
# Lines that complain of another one.
_ACCUSING = frozenset({"hang", "peer_complaint", "storage_complaint"})
# What planned work brings about.
_EXCUSED = frozenset(
    {
        *("link_down", "node_silent", "node_reboot", "gpu_lost", "port_errors", "host_fault", "power_sign"),
        *("switch_gone", "switch_notice", "service_fault", "peer_complaint", "driver_fault", "storage_complaint"),
    }
)
# Of these, what stays until somebody mends it.
_STANDING = frozenset({"gpu_lost", "driver_fault"})
_OUR_OWN = "foreshock:"
# Users in whose name programs drain.
_PROGRAMS = frozenset({"", "root", "slurm", "slurmctld", "unknown"})
# The scheduler is told a little before, and the node is back a little after.
_EXCUSE_BEFORE, _EXCUSE_AFTER = timedelta(minutes=5), timedelta(minutes=15)
_FLEETING = timedelta(minutes=1)
_STORM_GAP = timedelta(minutes=2)
# The Xid that the other GPUs of an NVLink domain print.
_DOWNSTREAM = 145
# From this many on, complaints of one name are no accident.
_SEVERAL, _SEVERAL_LEAK = 3, 0.01
# Errors that a program meets by a fault of its own as well as by one of the GPU: without more, nobody can say.
_VAGUE = re.compile(
    r"unspecified launch failure|CUDA error: unknown error|CUDA-capable device|found NaN in"
    r"|failed first: exit code|failed \(exitcode: "
)
_VAGUE_LEAK = 0.2
# Jobs are ended by people, and at their limit of time, with no fault at all.
_TAKEN_OFF_LEAK = 0.5
# What Slurm writes when a node registers with fewer GPUs than it should have.
_FEWER_GPUS = re.compile(r"gres/gpu\b.{0,40}\bcount (?:reported lower|too low)", re.ASCII)
_SHOWS: dict[Cause, SymptomKind] = {
    "hardware": "host_fault",
    "fabric": "link_down",
    "storage": "storage_complaint",
    "driver": "driver_fault",
    "host": "node_silent",
    "unknown": "node_silent",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing to be explained. `named` is whom its lines accuse.

    `run` is set where it is an effect of a job, `domain` where all GPUs of an NVLink domain show it.

    `leak` is the chance that it shows with no cause known here. `alone_of`: the nodes of its job,
    of which one GPU alone shows it.
    """

    kind: str
    place: Place
    node: str | None
    first: datetime
    last: datetime
    leak: float
    symptoms: tuple[Symptom, ...] = ()
    named: Place | None = None
    run: str | None = None
    domain: str | None = None
    cured: datetime | None = None
    nodes: frozenset[str] = frozenset()
    uncertainty_s: float = 1.0
    alone_of: int = 1

    def sign(self) -> str:
        """What it looks like: its kind, its code where it has one, else the part and whether it only warns."""
        code = self.symptoms[0].code if self.symptoms else None
        return f"{self.kind} {code if code is not None else f'{self.place.kind} {self.is_mild()}'}"

    def is_fleeting(self) -> bool:
        """Whether it was over within a minute."""
        return self.cured is not None and self.cured - self.last <= _FLEETING

    def is_mild(self) -> bool:
        """Whether it only warns."""
        return bool(self.symptoms) and all(symptom.severity in ("warning", "info") for symptom in self.symptoms)


@dataclass(slots=True)
class ExcusedWork:
    """What one piece of planned work accounts for: symptoms, and the end of the job where it `ended` that."""

    outages: list[Outage] = field(default_factory=list)
    symptoms: list[Symptom] = field(default_factory=list)
    ended: Stoppage | None = None


@dataclass(slots=True)
class SceneEffects:
    """All that is to be explained, and what is excused by reason of the work. `held`: nodes in planned work."""

    effects: list[Effect]
    excused: dict[str, ExcusedWork]
    held: frozenset[str]


def effects_of(scene: Scene) -> SceneEffects:
    """The effects of a scene, in the order of their symptoms."""
    planned = _planned(scene)
    noticed = {(one.node, one.start) for one in scene.outages if _noticed(one) is not None} if planned else set()
    excused: dict[str, ExcusedWork] = {}
    seen: list[Symptom] = []
    for symptom in (*scene.symptoms, *_marked_down(scene)):
        work = _excuse(symptom, planned, scene.graph)
        if work is not None and symptom.kind in _STANDING and _came_back_ill(symptom, work, noticed):
            work = None
        if work is None:
            seen.append(symptom)
            continue
        own = excused.setdefault(work.reason or work.state, ExcusedWork())
        own.symptoms.append(symptom)
        if work not in own.outages:
            own.outages.append(work)
    jobs = JobIndex(scene.jobs)
    effects = list(_effects(seen, jobs, scene.graph))
    stop = None if _is_of_work(scene, planned, excused) else _stop(scene)
    held = frozenset(node for node, works in planned.items() if any(_is_open(work, scene.now) for work in works))
    return SceneEffects([*effects, *([stop] if stop else [])], excused, held)


def domain_key(domain: str) -> str:
    """A key of an NVLink domain that no run's name is."""
    return f"\0{domain}"


class JobIndex:
    """Which jobs had a node at a moment."""

    def __init__(self, jobs: Iterable[SceneJob]) -> None:
        self._by_node: dict[str, list[SceneJob]] = defaultdict(list)
        self.by_run: dict[str, SceneJob] = {}
        for job in jobs:
            self.by_run[job.run] = job
            for node in job.nodes:
                self._by_node[node].append(job)

    def of(self, node: str | None, moment: datetime) -> SceneJob | None:
        """The newest job that had a node at a moment, or ended within the time of a time-out before it."""
        found = None
        for job in self._by_node.get(node or "", ()):
            if job.start <= moment and (job.end is None or moment <= job.end + MARKED_DOWN):
                found = job
        return found


def _effects(symptoms: Sequence[Symptom], jobs: JobIndex, graph: DeviceGraph) -> Iterator[Effect]:
    of_jobs: dict[tuple[str, str, Place | None], list[Symptom]] = {}
    of_domains: dict[tuple[str, str], list[Symptom]] = {}
    storms: list[Symptom] = []
    for symptom in (part for one in symptoms for part in _by_job(one, jobs)):
        domain = _domain(symptom, graph)
        if domain is not None:
            of_domains.setdefault((domain, symptom.kind), []).append(symptom)
            continue
        named = _accused(symptom, graph)
        if symptom.kind in OF_JOBS or symptom.place.kind == "job":
            job = jobs.of(symptom.node, symptom.first)
            run = symptom.run or (job.run if job is not None else None)
            if run is None and symptom.kind in _OF_PROGRAMS and symptom.node is not None:
                run = untold_job(symptom.node)  # of each node alone: no other one's lines go into it
            if run is not None:
                of_jobs.setdefault((run, symptom.kind, named), []).append(symptom)
                continue
        if symptom.kind == "pause_storm":
            storms.append(symptom)
            continue
        yield _own(symptom, named)
    yield from _storms(storms)
    for (run, kind, named), members in of_jobs.items():
        found = _of_job(run, named, members)
        is_alone = kind == "gpu_program" and found.place.kind == "gpu" and run in jobs.by_run
        yield replace(found, alone_of=max(1, len(jobs.by_run[run].nodes))) if is_alone else found
    for (domain, _), members in of_domains.items():
        shared = _of_job(domain, None, members)
        yield replace(shared, place=Place("nvswitch", domain), run=None, domain=domain)


def _by_job(symptom: Symptom, jobs: JobIndex) -> Iterator[Symptom]:
    """What several jobs met at one place, one after the other, of each of them: no program fails in another's job."""
    found: dict[str | None, list[datetime]] = defaultdict(list)
    for moment in symptom.moments if symptom.run is None else ():
        job = jobs.of(symptom.node, moment)
        found[None if job is None else job.run].append(moment)
    if len(found) < 2:
        yield symptom
        return
    for moments in found.values():
        first, last = min(moments), max(moments)
        yield replace(symptom, first=first, last=last, newest=last, count=len(moments), moments=())


def _storms(symptoms: Sequence[Symptom]) -> Iterator[Effect]:
    """Storms of pause frames: of ports that pause within minutes the first is where it began, the others feel it."""
    open_storm: list[Symptom] = []
    for symptom in [*sorted(symptoms, key=lambda one: (one.first, -one.count, one.place)), None]:
        if open_storm and (symptom is None or symptom.first - open_storm[-1].first > _STORM_GAP):
            felt = frozenset(one.node for one in open_storm if one.node is not None)
            last = max(one.last for one in open_storm)
            yield replace(_own(open_storm[0], None), symptoms=tuple(open_storm), last=last, nodes=felt)
            open_storm = []
        if symptom is not None:
            open_storm.append(symptom)


def _domain(symptom: Symptom, graph: DeviceGraph) -> str | None:
    """The NVLink domain whose GPUs all print a line when one link of it fails."""
    if symptom.code != _DOWNSTREAM or symptom.node is None:
        return None
    above = graph.parents(Place("node", symptom.node))
    return next((parent.name for parent in above if parent.kind == "nvswitch"), None)


def _own(symptom: Symptom, named: Place | None) -> Effect:
    return Effect(
        kind=symptom.kind,
        place=symptom.place,
        node=symptom.node,
        first=symptom.first,
        last=symptom.last,
        leak=_leak(symptom),
        symptoms=(symptom,),
        named=named,
        cured=symptom.cured,
        nodes=frozenset([symptom.node] if symptom.node else ()),
        uncertainty_s=symptom.uncertainty_s,
    )


def _of_job(run: str, named: Place | None, members: Sequence[Symptom]) -> Effect:
    """What the nodes of a job say alike; of one place alone it is that place's too."""
    places = {member.place for member in members}
    nodes = frozenset(member.node for member in members if member.node is not None)
    head = members[0]
    leak = max(map(_leak, members)) * (_SEVERAL_LEAK if named is not None and len(nodes) >= _SEVERAL else 1.0)
    return replace(
        _own(head, named),
        place=head.place if len(places) == 1 and head.place.kind in ("gpu", "node") else Place("job", run),
        node=head.node if len(nodes) == 1 else None,
        last=max(member.last for member in members),
        leak=leak,
        symptoms=tuple(members),
        run=run,
        nodes=nodes,
    )


def _leak(symptom: Symptom) -> float:
    """The chance that a symptom shows with no cause known; a warning says less than an error."""
    tables = cause_tables()
    if symptom.kind == "program_error" and _VAGUE.search(symptom.text):
        return _VAGUE_LEAK
    is_mild = symptom.severity in ("warning", "info")
    return tables.mild.get(symptom.kind, tables.leak[symptom.kind]) if is_mild else tables.leak[symptom.kind]


def _accused(symptom: Symptom, graph: DeviceGraph) -> Place | None:
    """Whom the lines of a symptom name."""
    if symptom.kind not in _ACCUSING:
        return None
    for name in symptom.points_at:
        known = graph.place_of(name)
        if known is None:
            known = graph.place_of(name.partition("@")[0].partition("<")[0])
        if known is not None:
            return known
    if symptom.kind == "storage_complaint" and symptom.points_at:
        return Place("storage", symptom.points_at[0])
    return None


def _stop(scene: Scene) -> Effect | None:
    stop = scene.stop
    if stop is None or stop.run is None:
        return None
    return Effect(
        STOP,
        Place("job", stop.run),
        None,
        stop.last_work,
        stop.end,
        cause_tables().leak[STOP] if scene.taken_off() is None else _TAKEN_OFF_LEAK,
        run=stop.run,
        nodes=stop.nodes or frozenset(),
    )


def _planned(scene: Scene) -> dict[str, list[Outage]]:
    """Planned work by node, and what an operator drained; without the holds of our own."""
    found: dict[str, list[Outage]] = defaultdict(list)
    for outage in scene.outages:
        if outage.reason.startswith(_OUR_OWN) or outage.cause == "application":
            continue
        if outage.planned or is_by_hand(outage):
            found[outage.node].append(outage)
    return dict(found)


def is_by_hand(outage: Outage) -> bool:
    """Whether a person took a node out of service."""
    by_person = outage.user is not None and outage.user.partition("(")[0].strip().lower() not in _PROGRAMS
    return by_person and outage.state.upper().startswith(("DRAIN", "MAINT"))


def _is_open(work: Outage, now: datetime) -> bool:
    return work.start <= now and (work.end is None or work.end > now)


def _excuse(symptom: Symptom, planned: dict[str, list[Outage]], graph: DeviceGraph) -> Outage | None:
    """The planned work that accounts for a symptom: of its node, or of the host at the far end of its cable."""
    if not planned or symptom.kind not in _EXCUSED:
        return None
    node = symptom.node or graph.node_of(symptom.place)
    if node is None:
        far = graph.far_end(symptom.place)
        node = None if far is None else graph.node_of(far)
    for work in planned.get(node or "", ()):
        since = work.start - (_EXCUSE_BEFORE if work.planned else timedelta())
        if since <= symptom.first and (work.end is None or symptom.first <= work.end + _EXCUSE_AFTER):
            return work
    return None


def _is_of_work(scene: Scene, planned: dict[str, list[Outage]], excused: dict[str, ExcusedWork]) -> bool:
    """Whether the job was taken off its nodes for planned work; then that work is noted to have ended it."""
    stop = scene.stop
    if stop is None or scene.taken_off() is None:
        return False
    works = [
        work
        for node in sorted(stop.nodes or ())
        for work in planned.get(node, ())
        if abs(work.start - stop.end) <= _EXCUSE_BEFORE and (work.planned or work.cause == "unknown")
    ]
    if not works:
        return False
    own = excused.setdefault(works[0].reason or works[0].state, ExcusedWork())
    own.outages += [work for work in works if work.reason == works[0].reason and work not in own.outages]
    own.ended = stop
    return True


def _came_back_ill(symptom: Symptom, work: Outage, noticed: Collection[tuple[str, datetime]]) -> bool:
    """Whether what is not cured was still so when the work was over: the scheduler took the node out anew at once."""
    if symptom.cured is not None or work.end is None:
        return False
    return any(node == work.node and work.end <= since <= work.end + _EXCUSE_AFTER for node, since in noticed)


def _noticed(outage: Outage) -> SymptomKind | None:
    """What the scheduler's own word of a node means; None where a person or planned work took it out."""
    state = outage.state.upper()
    if outage.planned or not state.startswith(("DOWN", "DRAIN")):
        return None
    if _FEWER_GPUS.match(outage.reason):
        return "gpu_lost"
    return _SHOWS.get(outage.cause) if state.startswith("DOWN") else None


def _marked_down(scene: Scene) -> Iterator[Symptom]:
    """What the scheduler alone noticed: nodes out of service, unplanned, that say nothing of it themselves."""
    silent = {one.node for one in scene.symptoms if one.kind in ("node_silent", "node_reboot")}
    for outage in scene.outages:
        kind = _noticed(outage)
        if kind is None or outage.node in silent or outage.reason.startswith(_OUR_OWN):
            continue
        if scene.stop is not None and outage.start > scene.stop.end + MARKED_DOWN:
            continue
        yield Symptom(
            kind=kind,
            place=Place("node", outage.node),
            node=outage.node,
            first=outage.start,
            last=outage.start,
            cured=outage.end,
            text=f"went out of service ({outage.state} {outage.reason})".replace(" )", ")"),
            uncertainty_s=MARKED_DOWN.total_seconds(),
        )

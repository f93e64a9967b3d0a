"""One failed NVLink as its whole domain tells it: what each GPU prints, when, and when its line arrives.

    storm = link_storm(seed=7)
    storm.culprit                       # (node, GPU, link): the truth
    for line in storm.lines: ...        # in the order in which they arrive
    play(storm).incidents               # batch by batch into a store, with the policy asked after each

After a public report (marin-community/marin, issues 8934 and 9086): of 64 GPUs on 16 nodes one printed Xid 149 with the
link, the other 63 within 0.5 s only Xid 145. Places, order, delays, the clocks of nodes and lost lines are drawn; so is
a second fault that has nothing to do with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import sqlalchemy as sa

from diagnosis.causes.explanation import explain
from diagnosis.causes.stored_scene import read_scene
from diagnosis.incidents.incidents_table import update_incidents
from parsers.registry import make_parser
from parsers.text.parser import Context
from schedulers.policy.decision import decide
from schedulers.policy.fact_queries import gather
from schedulers.policy.facts import HOLDING
from schedulers.policy.settings import Breaker, Budgets, Policy
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_nodes
from store.events.event_pages import read_incidents
from store.records.event import Event
from store.records.incident import Incident
from store.records.node import Node
from store.records.verdict import Verdict

Second = Literal["none", "gpu_elsewhere", "gpu_in_domain", "link_elsewhere", "program_elsewhere"]

# Clocks kept by NTP or PTP; beyond two seconds chrony steps them.
CLOCK_OFFSET_S = 2.0
LOST = 0.05  # of lines: a full journal, a sidecar that starts again
DELAY_S = 8.0  # the mean of what a line takes to arrive; the culprit's own node is often the slowest
GPUS = 4  # of a compute tray
LINKS = 18
_SECONDS: tuple[Second, ...] = ("none", "gpu_elsewhere", "gpu_in_domain", "link_elsewhere", "program_elsewhere")
_UNITS = ("RLW_SRC_TRACK", "RLW_RXPIPE", "RLW_REMAP", "RLW_CTRL")
_ZEROS = "0x00000000 0x00000000 0x00000000 0x00000000"


@dataclass(frozen=True, slots=True)
class StormLine:
    """A line of a node's kernel log. `time` is by the node's own clock; `arrives_s` after the fault."""

    node: str
    time: datetime
    arrives_s: float
    text: str


@dataclass(frozen=True, slots=True)
class LinkCulprit:
    """The GPU whose link failed."""

    node: str
    gpu: int
    link: int

    @property
    def pci(self) -> str:
        """Where the GPU is, as records write it."""
        return f"{pci_of(self.gpu)}.0"


@dataclass(frozen=True, slots=True)
class LinkStorm:
    """One variant. `domains`: each node's; `second_node`: where the second fault is, that may be held for it."""

    domains: dict[str, str]
    culprit: LinkCulprit
    start: datetime
    lines: tuple[StormLine, ...]
    second: Second
    second_node: str | None
    is_root_lost: bool  # the line with the link is among the lost ones


def pci_of(gpu: int) -> str:
    """Where a GPU of a tray is, as NVRM writes it."""
    return f"{(0x08, 0x09, 0x18, 0x19)[gpu]:04x}:01:00"


def link_storm(seed: int) -> LinkStorm:
    """A variant; the same seed gives the same."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice((8, 16, 18)))
    domains = {f"r{rack:02}-n{node:02}": f"nvl-{rack:02}" for rack in range(3) for node in range(size)}
    own = [node for node, domain in domains.items() if domain == "nvl-01"]
    culprit = LinkCulprit(str(rng.choice(own)), int(rng.integers(GPUS)), int(rng.integers(LINKS)))
    start = datetime(2026, 9, 10, 8, 8, 46, tzinfo=UTC) + timedelta(seconds=float(rng.uniform(0, 1)))
    printed = _of_the_domain(rng, own, culprit)
    second: Second = _SECONDS[int(rng.integers(len(_SECONDS)))]
    more, second_node = _second(rng, second, domains, culprit.node)
    offset = {node: float(rng.uniform(-CLOCK_OFFSET_S, CLOCK_OFFSET_S)) for node in domains}
    slow = {node: float(rng.exponential(DELAY_S)) for node in domains}
    lines, is_root_lost = [], False
    for number, (node, after_s, text) in enumerate([*printed, *more]):
        if rng.random() < LOST:
            is_root_lost = is_root_lost or number == 0
            continue
        time = start + timedelta(seconds=after_s + offset[node])
        arrives_s = after_s + slow[node] + float(rng.exponential(0.5))
        lines.append(StormLine(node, time, arrives_s, text))
    lines.sort(key=lambda line: (line.arrives_s, line.node, line.text))
    return LinkStorm(domains, culprit, start, tuple(lines), second, second_node, is_root_lost)


def _of_the_domain(rng: np.random.Generator, nodes: list[str], culprit: LinkCulprit) -> list[tuple[str, float, str]]:
    """What all GPUs print: (node, seconds after the fault, text); the line that names the link is the first."""
    detail = rng.choice(("", f" (0x004505c6 0x00000000 {_ZEROS})", f" (0x000001c6 0x00000000 {_ZEROS})"))
    words = f"149, NETIR_LINK_DOWN Fatal XC0 i0 Link {culprit.link:02}{detail}"
    found = [(culprit.node, 0.0, _line(culprit.gpu, words))]
    felt = float(rng.uniform(0.05, 0.5))
    reset = rng.choice(("0x1 (GPU Reset Required)", "0x4 (Drain and Reset)"))
    for node in nodes:
        for gpu in range(GPUS):
            is_culprit = (node, gpu) == (culprit.node, culprit.gpu)
            after_s = float(rng.uniform(0.0, felt))
            if not is_culprit:
                found.append((node, after_s, _line(gpu, _downstream(rng))))
            cause = 149 if is_culprit else 145
            for channel in range(int(rng.integers(0, 3))):
                text = f"45, pid={2000 + gpu}, name=python3, Ch {channel:08x} caused by previous Xid {cause}"
                found.append((node, after_s + 0.1, _line(gpu, text)))
            if rng.random() < 0.7:
                text = f"154, GPU recovery action changed from 0x0 (None) to {reset}"
                found.append((node, after_s + 0.2, _line(gpu, text)))
    return found


def _downstream(rng: np.random.Generator) -> str:
    unit, grave = rng.choice(_UNITS), rng.random() < 0.5
    severity, contained = ("Fatal", 0) if grave else ("Nonfatal", 1)
    link = int(rng.integers(-1, LINKS))
    status = rng.choice(("0x00000004", "0x00000008", "0x00000010", "0x80000000"))
    return f"145, {unit} {severity} XC{contained} i0 Link {link:02} (0x000000e2 {status} {_ZEROS})"


def _second(
    rng: np.random.Generator, second: Second, domains: dict[str, str], culprit: str
) -> tuple[list[tuple[str, float, str]], str | None]:
    """The lines of the other fault and its node."""
    if second == "none":
        return [], None
    inside = second == "gpu_in_domain"
    among = [node for node, domain in domains.items() if (domain == "nvl-01") == inside and node != culprit]
    node, gpu = str(rng.choice(among)), int(rng.integers(GPUS))
    words = {
        "gpu_elsewhere": "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "gpu_in_domain": "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "link_elsewhere": f"149, NETIR_LINK_DOWN Fatal XC0 i0 Link {int(rng.integers(LINKS)):02}",
        "program_elsewhere": "31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS",
    }[second]
    return [(node, float(rng.uniform(-90.0, 90.0)), _line(gpu, words))], node


def _line(gpu: int, words: str) -> str:
    return f"NVRM: Xid (PCI:{pci_of(gpu)}): {words}"


# Nothing but the decision itself keeps the policy from holding every node.
OPEN = Policy(
    mode="act",
    budgets=Budgets(nodes=100, percent_of_nodes=100, per_rack=100, per_leaf=100, per_hour=100, per_nvlink_domain=100),
    breaker=Breaker(nodes=100, cluster_nodes=100),
)
_BATCH_S = 2.0


@dataclass(frozen=True, slots=True)
class StormOutcome:
    """What came of a storm. `held`: every node that the policy asked to hold at any moment of it."""

    incidents: tuple[Incident, ...]
    verdicts: tuple[Verdict, ...]
    held: frozenset[str] = field(default_factory=frozenset)

    def of_domain(self, domain: str) -> list[Incident]:
        """The incidents of an NVLink domain."""
        return [one for one in self.incidents if one.domain == domain]


def is_right(storm: LinkStorm, outcome: StormOutcome) -> bool:
    """Whether one incident of the domain names the GPU, and its link where the line that tells it arrived."""
    found = outcome.of_domain(storm.domains[storm.culprit.node])
    if len(found) != 1 or found[0].node != storm.culprit.node or found[0].device.pci != storm.culprit.pci:
        return False
    return found[0].link == (None if storm.is_root_lost else storm.culprit.link)


def wrongly_held(storm: LinkStorm, outcome: StormOutcome) -> frozenset[str]:
    """Held nodes that have no fault of their own."""
    return outcome.held - {storm.culprit.node, storm.second_node or storm.culprit.node}


def events_of(lines: Sequence[StormLine], number: int = 0) -> list[Event]:
    """The events of lines, through the kernel log's own parser."""
    parser = make_parser("kernel", Context(year=2026))
    found: list[Event] = []
    for place, line in enumerate(lines, start=1):
        text = f"{line.time.isoformat(timespec='microseconds')} {line.node} kernel: {line.text}\n"
        found += parser.feed(text, number + place)
    return found + list(parser.flush())


def play(storm: LinkStorm, url: str = "sqlite://") -> StormOutcome:
    """The storm from its first line to its last."""
    with _site(storm, url) as engine:
        held: set[str] = set()
        for batch in _batches(storm.lines):
            now = storm.start + timedelta(seconds=batch[-1].arrives_s + 1.0)
            take(engine, events_of(batch), now)
            held |= held_nodes(engine, now)
        return outcome_of(engine, storm.start, held)


def take(engine: sa.Engine, events: Sequence[Event], now: datetime) -> None:
    """Store events and make incidents of them."""
    with writing(engine).begin() as connection:
        update_incidents(connection, append_events(connection, events, received=now).new)


def held_nodes(engine: sa.Engine, now: datetime) -> set[str]:
    """The nodes that the policy would hold now."""
    with engine.begin() as connection:
        decision = decide(gather(connection, OPEN, now), OPEN)
    return {hint.node for hint, _ in decision.changed if hint.action in HOLDING}


def outcome_of(engine: sa.Engine, start: datetime, held: set[str]) -> StormOutcome:
    """What the store tells in the end."""
    with engine.begin() as connection:
        incidents = read_incidents(connection, start - timedelta(hours=1), start + timedelta(hours=1))
        scene = read_scene(connection)
    return StormOutcome(tuple(incidents), () if scene is None else tuple(explain(scene)), frozenset(held))


@contextmanager
def _site(storm: LinkStorm, url: str) -> Iterator[sa.Engine]:
    engine = open_database(url)
    migrate(engine)
    try:
        with writing(engine).begin() as connection:
            append_nodes(connection, [Node(node, nvlink_domain=domain) for node, domain in storm.domains.items()])
        yield engine
    finally:
        engine.dispose()


def _batches(lines: Sequence[StormLine]) -> Iterator[list[StormLine]]:
    batch: list[StormLine] = []
    for line in lines:
        if batch and line.arrives_s - batch[0].arrives_s > _BATCH_S:
            yield batch
            batch = []
        batch.append(line)
    if batch:
        yield batch

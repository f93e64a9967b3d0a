"""Judges the search for causes by a fabric's log: as it grows, act by act, whose name comes first.

tail = LogTail(graph_of(ibnetdiscover_text))
tail.take(lines); tail.verdicts()      # what a running server would say now
"""

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from real.fabric_acts import Act

from diagnosis.causes.explanation import explain
from diagnosis.causes.scene import Scene
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.graph_builder import TopologyRecords, build_graph
from diagnosis.symptoms.folding import SymptomFold
from parsers.formats import opensm
from parsers.text.parser import Context
from parsers.topology.topology_sources import read_topology
from store.records.event import Event, with_id
from store.records.verdict import Verdict

# A running server looks again so long after the last line.
LOOK = timedelta(seconds=1)
SURE = 0.9


def graph_of(topology: str) -> DeviceGraph:
    """The graph that ibnetdiscover's text gives."""
    told = read_topology("ibnetdiscover", topology)
    nodes = sorted({link.peer for link in told.links if link.peer_type == "hca"})
    return build_graph(TopologyRecords(nodes=nodes, links=told.links, names=told.names, groups=told.groups))


class LogTail:
    """One log as it grows: its events, folded to symptoms, explained."""

    def __init__(self, graph: DeviceGraph) -> None:
        self._parser = opensm.FORMAT.make(Context(year=datetime.now(UTC).year))
        self.graph = graph
        self._fold = SymptomFold(graph)
        self._line = 0
        self._last: datetime | None = None

    def take(self, lines: Iterable[str], listed: Iterable[Event] = ()) -> list[Event]:
        """Read further lines to a moment at which the log is quiet, and what the list of links then says."""
        events: list[Event] = []
        for line in lines:
            self._line += 1
            events += self._parser.feed(line, self._line)
        events = [with_id(event, str(self._line)) for event in (*events, *self._parser.flush())]
        events += [with_id(event, f"{self._line}-{number}") for number, event in enumerate(listed)]
        self._fold.take(events)
        self._last = max((event.time for event in events if event.time is not None), default=self._last)
        return events

    def verdicts(self) -> list[Verdict]:
        """What is said a second after the last line."""
        assert self._last is not None, "no line yet has a time"
        now = self._last + LOOK
        self._fold.forget(now - timedelta(hours=1))
        return explain(Scene(now=now, symptoms=self._fold.symptoms(now), graph=self.graph))


@dataclass(frozen=True, slots=True)
class Judgement:
    """How an act was answered. `wide`: the log names one end of the cable alone, and so did the answer.

    `seconds` of processor from the first of its lines to the answer: others share the machine.
    """

    act: Act
    right: bool
    wide: bool
    answers: tuple[tuple[str, str, float], ...]
    seconds: float

    def is_wrong_and_sure(self) -> bool:
        """Whether an answer with a high probability is wrong."""
        return bool(self.answers) and not self.right and not self.wide and self.answers[0][2] >= SURE


def judge(act: Act, lines: Sequence[str], tail: LogTail, listed: Iterable[Event] = ()) -> Judgement:
    """Whose name comes first once an act's lines are there, and how long that took."""
    began = time.thread_time()
    events = tail.take(lines, listed)
    found = tail.verdicts()
    spent = time.thread_time() - began
    first = found[0] if found else None
    right = first is not None and names_it(first, act.accepted)
    wide = first is not None and not right and first.name in only_speaker(act, events, tail.graph)
    return Judgement(
        act, right, wide, tuple((one.cause_class, one.name, round(one.probability, 3)) for one in found[:4]), spent
    )


def names_it(verdict: Verdict, accepted: Collection[str]) -> bool:
    """Whether a verdict's name is the truth's, or the same cable or adapter with its port's number."""
    ends = sorted(end.removesuffix("/1") if "/mlx5_" in end else end for end in verdict.name.split("--"))
    return "--".join(ends) in accepted


def only_speaker(act: Act, events: Iterable[Event], graph: DeviceGraph) -> set[str]:
    """The one switch that gave notice of a cable between two, where the other's word was lost with the cable."""
    switches = {name.partition("/")[0] for name in act.accepted if "--" not in name and "mlx5" not in name}
    if len(switches) != 2:
        return set()
    guids = {event.device.uuid for event in events if event.kind == "link_state_change"}
    told = {place.name for guid in guids if guid and (place := graph.place_of(guid, "switch")) is not None}
    spoke = switches & told
    return spoke if len(spoke) == 1 else set()


def judge_log(
    log: bytes, acts: Sequence[Act], topology: str, *, alone: bool, with_list: bool = False
) -> list[Judgement]:
    """Every act of a log: all by one tail, or each alone by a tail that knows the log's head and its own lines.

    Args:
        with_list: what the manager's list of links says is known, too.
    """
    graph = graph_of(topology)
    head = log[: acts[0].offsets[0]].decode(errors="replace").splitlines()
    tail, found = LogTail(graph), []
    tail.take(head)
    for act in acts:
        begin, rest, cured = act.offsets
        if alone:
            tail = LogTail(graph)
            tail.take(head)
        broken, back = act.listed if with_list else ((), ())
        found.append(judge(act, log[begin:rest].decode(errors="replace").splitlines(), tail, broken))
        if not alone:
            tail.take(log[rest:cured].decode(errors="replace").splitlines(), back)
    return found

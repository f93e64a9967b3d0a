"""What may fail: a node, or a link. The same features, labels and model serve both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from predictor.hazard.prior import Prior, packaged
from predictor.history.arrays import (
    EVENT_WINDOW_MS,
    FAR_FUTURE_MS,
    INCIDENT_GAP_MS,
    TELEMETRY_COLUMNS,
    Bools,
    History,
    Ints,
    Jobs,
    OutageLog,
    Population,
    Telemetry,
    WindowIndex,
    to_ms,
)
from predictor.history.families import FAMILY_INDEX
from predictor.history.precursor_log import milliseconds
from predictor.history.store_reader import read_history, read_population
from predictor.links.link_log import EVER_MS, LOSS_WINDOW_MS, KnownLinks, LinkLog, known_links, read_link_log
from predictor.model.baselines import BASELINES, LINK_BASELINES, Baseline
from store.tables import schema

# Links as subjects: which cable or optic will flap or die, by the same features, labels and model as nodes.
#
#     history = link_history(connection, first, last)      # history.fleet.names: "leaf-03/12", "gpu-017/mlx5_3"
#     population = link_population(connection, end_ms)
#
# A link is a cable of the topology, named by its switch and port; or, where the topology cannot tell which one an event
# speaks of, a port of a node. What either end says is the link's. Its "outages" are its losses: flaps less than ten
# minutes apart are one. A loss while either end was out of service is nobody's fault: it counts as planned.

# Losses closer than this are one; one lasts at least a minute, since few sources say when it was over.
LOSS_GAP_MS, LOSS_MS = 10 * 60_000, 60_000
# A node's outage is written down minutes after its link fell, and its link comes up a while before it is back.
_HINDSIGHT_MS = 15 * 60_000


@dataclass(frozen=True, slots=True)
class LinkEvents:
    """The links, and what was told of them: read once for all histories that are asked for."""

    known: KnownLinks
    log: LinkLog

    @classmethod
    def of(cls, connection: sa.Connection, window_ms: tuple[int, int] = EVER_MS) -> "LinkEvents":
        """What the store holds."""
        known = known_links(connection)
        return cls(known, read_link_log(connection, known.cabling, known.fleet.names, window_ms))

    def history(self, connection: sa.Connection, first: datetime, last: datetime) -> History:
        """As `link_history`."""
        first_ms, last_ms = to_ms(first), to_ms(last)
        begun_ms = self.known.begun_ms
        nothing = np.empty(0, dtype=np.int64)
        dark = Telemetry(nothing, nothing, np.empty((0, len(TELEMETRY_COLUMNS)), dtype=np.float32), nothing)
        return History(
            fleet=self.known.fleet,
            precursors=self.log.precursors(first_ms - EVENT_WINDOW_MS - INCIDENT_GAP_MS, last_ms),
            outages=self._lost(connection, (first_ms - LOSS_WINDOW_MS, last_ms)),
            telemetry=dark,
            jobs=Jobs(nothing, nothing, nothing, nothing),
            start_ms=first_ms if begun_ms is None else min(begun_ms, first_ms),
        )

    def population(self, connection: sa.Connection, end_ms: int) -> Population:
        """As `link_population`."""
        return Population(self.known.fleet, self._lost(connection, EVER_MS), end_ms)

    def _lost(self, connection: sa.Connection, window_ms: tuple[int, int]) -> OutageLog:
        """Flaps as outages of their links, those excused that are no fault of theirs: by hindsight, if of all time."""
        flaps, hindsight = self.log.precursors(*window_ms), window_ms == EVER_MS
        lost = flaps.family == FAMILY_INDEX["link_flap"]
        losses = _losses(flaps.node[lost], flaps.time_ms[lost], None if hindsight else window_ms[1])
        return replace(losses, planned=_excused(connection, losses, _ends(self.known), hindsight))


def link_history(connection: sa.Connection, first: datetime, last: datetime) -> History:
    """All that features of links between two moments need: nothing at or after `last`, no older loss than a year."""
    window_ms = (to_ms(first) - LOSS_WINDOW_MS, to_ms(last))
    return LinkEvents.of(connection, window_ms).history(connection, first, last)


def link_population(connection: sa.Connection, end_ms: int) -> Population:
    """Every link and every loss, the future included: for labels alone."""
    return LinkEvents.of(connection).population(connection, end_ms)


def _ends(known: KnownLinks) -> dict[str, list[int]]:
    """The links of each host."""
    found: dict[str, list[int]] = {}
    cabling, index = known.cabling, known.fleet.index
    pairs = [(cable.far, cable.name) for cable in cabling.cables if cable.far_is_host]
    for host, name in (*pairs, *((host, name) for name, host in cabling.own.items())):
        # A port that fell silent long ago is no link, though a label's reading meets it.
        if name in index:
            found.setdefault(host, []).append(index[name])
    return found


def _losses(link: Ints, time_ms: Ints, until_ms: int | None) -> OutageLog:
    """Flaps as losses: those of one link that follow each other closely are one. An end that is not over is unknown."""
    order = np.lexsort((time_ms, link))
    link, time_ms = link[order], time_ms[order]
    opens = np.ones(len(link), dtype=np.bool_)
    opens[1:] = (link[1:] != link[:-1]) | (time_ms[1:] - time_ms[:-1] > LOSS_GAP_MS)
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(link)) - 1 if len(first) else first
    end_ms = time_ms[last] + LOSS_MS if len(first) else time_ms[first]
    if until_ms is not None:
        end_ms = np.where(end_ms >= until_ms, FAR_FUTURE_MS, end_ms)
    by_start = np.argsort(time_ms[first], kind="stable")
    none = np.zeros(len(first), dtype=np.bool_)
    return OutageLog(link[first][by_start], time_ms[first][by_start], end_ms[by_start], none, none)


def _excused(connection: sa.Connection, losses: OutageLog, ends: dict[str, list[int]], hindsight: bool) -> Bools:
    """Losses while the host was out of service for another reason than the fabric.

    Features know only of outages that had begun by then; labels, of those that were written down a little later too.
    """
    table = schema.outages
    late_ms = _HINDSIGHT_MS if hindsight else 0
    query = sa.select(table.c.node, milliseconds(connection, table.c.start), milliseconds(connection, table.c.end))
    query = query.where(sa.or_(table.c.planned.is_(True), table.c.cause != "fabric"))
    spans = [
        (link, start_ms - late_ms, FAR_FUTURE_MS if end_ms is None else end_ms + late_ms + 1)
        for node, start_ms, end_ms in connection.execute(query)
        for link in ends.get(node, ())
    ]
    link, first_ms, over_ms = np.array(spans, dtype=np.int64).reshape(-1, 3).T
    of_link = WindowIndex.of(losses.node, losses.start_ms)
    # One more within a span of the sorted losses, one less behind it; a span that ends before it begins has none.
    within = np.zeros(len(losses.node) + 1, dtype=np.int64)
    first = of_link.before(link, first_ms)
    np.add.at(within, first, 1)
    np.add.at(within, np.maximum(of_link.before(link, over_ms), first), -1)
    excused = np.zeros(len(losses.node), dtype=np.bool_)
    excused[of_link.order] = np.cumsum(within)[:-1] > 0
    return excused


@dataclass(frozen=True, slots=True)
class Subjects:
    """How one kind of subject is read, what a model of it must beat, and what other clusters taught of it."""

    noun: str
    population: Callable[[sa.Connection, int], Population]
    history: Callable[[sa.Connection, datetime, datetime], History]
    baselines: Mapping[str, Baseline]
    prior: Callable[[], Prior | None]


NODES = Subjects("node", read_population, read_history, BASELINES, packaged)
LINKS = Subjects("link", link_population, link_history, LINK_BASELINES, lambda: None)

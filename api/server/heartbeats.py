"""Heartbeats of sidecars: gathered in memory, the newest of each node, and written once a second.

They are no acknowledged data: what a crash takes of the last second comes again within a minute.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from store.database.connections import is_of_the_rows, writing
from store.nodes.sidecars import SidecarReport, write_sidecars

WRITE_EVERY_S = 1.0
# Ten times the largest cluster known: a sender that makes up names fills no memory.
MOST_NODES = 125_000
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Heartbeats:
    """The newest report of each node that waits to be written. Safe for several threads."""

    _waiting: dict[str, SidecarReport] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, reports: Iterable[SidecarReport]) -> int:
        """Keep reports for the next writing; says how many there was no room for."""
        left_out = 0
        with self._lock:
            for report in reports:
                if len(self._waiting) < MOST_NODES or report.node in self._waiting:
                    self._waiting[report.node] = report
                else:
                    left_out += 1
        return left_out

    def write(self, engine: sa.Engine) -> int:
        """Write what waits; says how many. What could not be written waits on, unless newer came meanwhile.

        One that no database takes keeps no other from being written: it is left out, and its node is logged.

        Raises:
            SQLAlchemyError: the database does not take it now.
        """
        with self._lock:
            taken, self._waiting = self._waiting, {}
        if not taken:
            return 0
        try:
            return _write(engine, list(taken.values()))
        except BaseException:
            with self._lock:
                self._waiting = {**taken, **self._waiting}
            raise


def _write(engine: sa.Engine, reports: Sequence[SidecarReport]) -> int:
    """Write reports, in halves where they are to blame themselves: one alone that is, is left out. Returns how many."""
    try:
        with writing(engine).begin() as connection:
            write_sidecars(connection, reports)
        return len(reports)
    except Exception as error:
        if not is_of_the_rows(error):
            raise
        if len(reports) == 1:
            node = reports[0].node
            _log.warning("the heartbeat of node %r cannot be written and is left out: %s", node[:80], error)
            return 0
    half = len(reports) // 2
    return _write(engine, reports[:half]) + _write(engine, reports[half:])


class HeartbeatWriter:
    """The thread that writes heartbeats: every process writes its own, under no lease."""

    def __init__(
        self, heartbeats: Heartbeats, engine: sa.Engine, failed: Callable[[], None], refresh_names: Callable[[], None]
    ) -> None:
        """`failed` is called for each writing that fails; the names of nodes are kept up to date beside it."""
        self._heartbeats = heartbeats
        self._refresh_names = refresh_names
        self._engine = engine
        self._failed = failed
        self._stop = threading.Event()
        self._down: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, wait_s: float) -> None:
        """Write what is left, and end."""
        self._stop.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._stop.wait(WRITE_EVERY_S)
            self._try("heartbeats wait, the database does not take them", lambda: self._heartbeats.write(self._engine))
            self._try("the inventory stays as it was known, the database does not tell it", self._refresh_names)

    def _try(self, trouble: str, work: Callable[[], object]) -> None:
        """Do one thing; what fails leaves the other alone, and is logged once until it works again."""
        try:
            work()
            self._down.discard(trouble)
        except Exception as error:  # noqa: BLE001  # the thread outlives whatever the database does
            self._failed()
            if trouble not in self._down:
                _log.warning("%s: %s", trouble, error)
            self._down.add(trouble)

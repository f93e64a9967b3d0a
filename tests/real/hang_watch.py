"""Two nodes' sidecar sources and the server's view of the ranks, over a real job: who is named, and when.

PYTHONPATH=tests:. FORESHOCK_HANG_RUNS=20 python tests/real/hang_watch.py     measures stopped ranks (docs/hangs.md)
"""

import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from real.torch_job import TorchJob, torch_job

from collectors.collector import SourceSettings
from collectors.sources.flight import FlightCollector
from collectors.sources.ranks import RanksCollector
from diagnosis.hangs.stuck_ranks import StuckRanks
from store.records.event import Event

STALL_S = 3.0
LOOK_S = 0.5


@dataclass(slots=True)
class HangWatch:
    """The sources of a job's nodes. `first` is when the first report of a wait came since it was cleared."""

    job: TorchJob
    ranks: StuckRanks = field(default_factory=StuckRanks)
    sources: list[RanksCollector | FlightCollector] = field(default_factory=list)
    first: float | None = None
    sent: int = 0

    def __post_init__(self) -> None:
        for node in range(1, (self.job.world + 3) // 4 + 1):
            settings = SourceSettings(node=f"node-{node}", interval_s=LOOK_S)
            self.sources.append(RanksCollector(f"{self.job.folder}/node-{node}#stall_s={STALL_S}", settings))
        dumps = FlightCollector(f"{self.job.folder}/dumps#run=gloo", SourceSettings(node="node-1", interval_s=LOOK_S))
        self.sources.append(dumps)
        for source in self.sources:
            source.open(None)

    def look(self) -> list[Event]:
        """One round of every source; what is stuck and slow then."""
        for source in self.sources:
            turn = source.collect(LOOK_S)
            self.sent += len(turn.events)
            for event in turn.events:
                if event.kind == "collective_wait" and self.first is None:
                    self.first = time.time()
                self.ranks.take(event)
        return self.ranks.events(datetime.now(UTC))

    def until(self, found: Callable[[list[Event]], bool], within_s: float) -> list[Event]:
        """Look until something is found, or the time is over; the last look."""
        end_s = time.monotonic() + within_s
        events = self.look()
        while not found(events) and time.monotonic() < end_s:
            events = self.look()
        return events


def named(events: list[Event], kind: str) -> dict[int, str | None]:
    """The ranks of a kind of finding, each with its node."""
    return {int(str(event.attributes["rank"])): event.node for event in events if event.kind == kind}


def measure_stops(watch: HangWatch, runs: int, choose: random.Random) -> dict[str, object]:
    """Stop one rank after another, and let it go on when somebody was named."""
    right, late, wrong, delays = 0, 0, 0, []
    for _ in range(runs):
        watch.until(lambda _events: False, choose.uniform(2.0, 4.0))
        watch.until(lambda events: not named(events, "rank_missing"), 60.0)
        watch.first = None
        rank = choose.randrange(watch.job.world)
        watch.job.stop_rank(rank)
        events = watch.until(lambda events: bool(named(events, "rank_missing")), 60.0)
        seen = time.time()
        delay = seen - (watch.first or seen)
        delays.append(round(delay, 2))
        correct = named(events, "rank_missing") == {rank: f"node-{rank // 4 + 1}"}
        right += correct and delay <= 5.0
        late += correct and delay > 5.0
        wrong += not correct
        watch.job.go_on(rank)
    return {"runs": runs, "named_within_5_s": right, "late": late, "wrong": wrong, "most_s": max(delays)}


def main() -> None:
    """Measure on this machine."""
    runs, seed = int(os.environ.get("FORESHOCK_HANG_RUNS", "20")), int(os.environ.get("FORESHOCK_HANG_SEED", "1"))
    folder = Path(tempfile.mkdtemp(prefix="foreshock-hangs-"))
    try:
        with torch_job(folder) as job:
            watch = HangWatch(job)
            begun = time.time()
            found = measure_stops(watch, runs, random.Random(seed))
            took = {"events_sent": watch.sent, "took_s": round(time.time() - begun)}
            print(json.dumps({"stopped": found, **took}), flush=True)  # noqa: T201  # what was asked for
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""`foreshock demo`: the whole product on this machine, embedded, with a replayed cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, timedelta
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import click

from cli.console.errors import Failure
from cli.console.output import print_text
from cli.console.store import open_store, shown
from cli.processes.children import Children, free_port
from cli.replay.clock import ReplayClock, real_clock
from predictor.dataset.folds import NoDataError

if TYPE_CHECKING:
    import sqlalchemy as sa

    from cli.replay.exporter import Feeder, Stretch
    from cli.replay.tape import ReplayTape
    from simulator.simulation import SimulatedCluster

_TICK_S = 0.2
# Hours of the replay go by in seconds: the sidecar scrapes and sends, the server scores and decides, as often.
_TURN_S = 2.0
# One scrape of all nodes, read and kept, takes some 6 s of a processor at 1250 nodes.
_NODES_PER_TURN_S = 50
_MANY_NODES = 256
_SILENT_SCRAPES = 10
# Real seconds in which what became of the cluster can be looked at before the replay begins again.
_PAUSE_S = 60.0
# 0.8-20 unplanned failures per 1000 node-days are published; a small cluster needs many to show any.
_RATE_PER_1000_NODE_DAYS = 12.0
# One that ends is noticed at once: this bounds one that hangs, and a busy machine takes a minute to start each.
_PATIENCE_S = 300.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the command line chose."""

    nodes: int
    days: int
    seed: int
    speed: float
    db: str | None
    port: int
    dashboard_port: int
    browser: bool

    @property
    def turn_s(self) -> float:
        """Seconds between two scrapes."""
        return max(_TURN_S, self.nodes / _NODES_PER_TURN_S)


@click.command()
@click.option("--nodes", default=64, show_default=True, type=click.IntRange(8, 2000), help="Nodes of the cluster.")
@click.option("--days", default=60, show_default=True, type=click.IntRange(20, 365), help="Days that are simulated.")
@click.option("--seed", default=9, show_default=True, type=int, help="Another seed is another cluster.")
@click.option(
    "--speed", default=600.0, show_default=True, type=click.FloatRange(0.1, 86_400), help="Replayed seconds a second."
)
@click.option("--db", help="Database, empty: sqlite:///PATH or postgresql+psycopg://... [default: a temporary file]")
@click.option("--port", default=10870, show_default=True, help="Port of the API; another if it is taken, 0 for any.")
@click.option("--dashboard-port", default=8501, show_default=True, help="Port of the dashboard; likewise.")
@click.option("--browser/--no-browser", default=True, help="Open the dashboard in a browser.")
def demo(**options: object) -> None:
    """Show the whole product: a simulated cluster and one real node's telemetry, replayed live through a real sidecar
    and API.
    """
    settings = DemoSettings(**options)  # type: ignore[arg-type]  # click has converted each by its type
    # The simulated logs are written in UTC; formats without a zone are read in this process's.
    os.environ["TZ"] = "UTC"
    time.tzset()
    with _stopping(), tempfile.TemporaryDirectory(prefix="foreshock-demo-") as directory:
        _run(settings, Path(directory))


@contextmanager
def _stopping() -> Iterator[None]:
    """Ctrl-C and SIGTERM leave the command quietly, through every context that it holds.

    The first one is enough: a second must not break off the stopping of what runs.
    """
    signals = (signal.SIGINT, signal.SIGTERM)

    def leave(_signal: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, leave) for number in signals}
    try:
        yield
    except KeyboardInterrupt:
        print_text("stopped", err=True)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class DemoReplay:
    """What every round of the replay is played with. `history`: the database before it; None: a round plays in `db`."""

    settings: DemoSettings
    directory: Path
    cluster: SimulatedCluster
    stretch: Stretch
    tape: ReplayTape
    history: Path | None
    ports: tuple[int, int]


def _run(settings: DemoSettings, directory: Path) -> None:
    from cli.replay.tape import CREDIT, NODE
    from store.events.event_pages import newest_time

    history = None if settings.db else directory / "history.db"
    url = settings.db or f"sqlite:///{history}"
    engine = open_store(url, create=True)
    try:
        with engine.connect() as connection:
            if newest_time(connection) is not None:
                raise Failure(f"{shown(url)} holds data already: name an empty database, or leave --db out")
        cluster, stretch, tape = _history(settings, engine, directory)
    finally:
        engine.dispose()
    print_text(f"{NODE}: {CREDIT}", err=True)
    ports = (free_port(settings.port), free_port(settings.dashboard_port))
    stage = DemoReplay(settings, directory, cluster, stretch, tape, history, ports)
    with Children(directory) as children:
        for number in count(1):
            play(stage, children, number)


def play(stage: DemoReplay, children: Children, number: int) -> None:
    """One round of the replay, from the history as it was; the dashboard stays up from the first one on."""
    from cli.replay.exporter import exporter, feeder, tape_page
    from cli.replay.tape import CREDIT, NODE

    settings, stretch, directory = stage.settings, stage.stretch, stage.directory
    with tempfile.TemporaryDirectory(prefix=f"round-{number}-", dir=directory) as own:
        url, again = settings.db or f"sqlite:///{own}/foreshock.db", None
        if stage.history is not None:
            shutil.copyfile(stage.history, Path(own) / "foreshock.db")
            again = _PAUSE_S
        clock = ReplayClock(stretch.start, stretch.end, real_clock(), settings.speed, again)
        feed = feeder(stage.cluster, stretch, Path(own) / "logs")
        with exporter(stage.cluster, clock, stage.tape) as page:
            scraped = [{"source": f"scrape:{tape_page(page)}", "node": NODE, "hosts": "one"}, "kmsg"]
            # A file of JSON is one of YAML; of what is read, only a file says whose a single source is.
            (directory / "sidecar.yaml").write_text(json.dumps({"source": scraped}), encoding="utf-8")
            notes = {"inventory": {"notes": {NODE: CREDIT}}}
            (directory / "server.yaml").write_text(json.dumps(notes), encoding="utf-8")
            try:
                _start(stage, Path(own), (url, clock), [*feed.sources(), f"scrape:{page}"], children)
                hours = (stretch.end - stretch.start) / timedelta(hours=1)
                print_text(f"the replay: {hours:.0f} hours in {60 * hours / settings.speed:.1f} minutes", err=True)
                replay_logs(feed, clock, children)
            finally:  # before the folder goes that they write in
                children.stop("API", "sidecar")


def _history(
    settings: DemoSettings, engine: sa.Engine, directory: Path
) -> tuple[SimulatedCluster, Stretch, ReplayTape]:
    """Simulate, load what lies before the replayed stretch, learn from it and score the nodes."""
    from cli.commands.ingest import ingest_archive
    from cli.replay.exporter import choose_stretch
    from cli.replay.tape import read_tape
    from predictor.live.scoring import score_nodes
    from predictor.live.training import train
    from predictor.model.forest import ModelError
    from simulator.output.archive import write_archive
    from simulator.simulation import simulate
    from simulator.site import SimulationSettings

    if settings.nodes > _MANY_NODES:
        print_text(
            f"{settings.nodes} nodes take some minutes to prepare (--days 20 takes a third of them), and all GPUs are "
            f"then sampled every {settings.turn_s:.0f} s: --speed 60 shows more of what happens",
            err=True,
        )
    midnight = real_clock().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start = midnight - timedelta(days=settings.days)
    chosen = SimulationSettings(settings.nodes, settings.days, settings.seed, start, _RATE_PER_1000_NODE_DAYS)
    cluster = _step(f"simulating {settings.nodes} nodes over {settings.days} days", lambda: simulate(chosen))
    stretch = choose_stretch(cluster)
    archive, tape = directory / "archive", read_tape(stretch.start)
    _step("writing its logs", lambda: write_archive(cluster, archive, until=stretch.start))
    tape.write_history(archive, stretch.start)
    workers = os.cpu_count() or 1
    _step("loading them", lambda: ingest_archive(engine, archive, workers=workers, received=stretch.start))
    try:
        _step("training on them", lambda: train(engine, until=stretch.start))
        _step("scoring the nodes", lambda: score_nodes(engine, stretch.start))
    except (ModelError, NoDataError) as error:
        print_text(f"not done: {error}; the demo goes on without scores", err=True)
    return cluster, stretch, tape


def _step(words: str, work: Callable[[], T]) -> T:
    began = time.monotonic()
    print_text(f"{words} ... ", nl=False, err=True)
    result = work()
    print_text(f"{time.monotonic() - began:.1f} s", err=True)
    return result


def _start(
    stage: DemoReplay, own: Path, replayed: tuple[str, ReplayClock], sources: list[str], children: Children
) -> None:
    """Start API, sidecar and, in the first round, the dashboard; say where they are once they answer.

    Args:
        own: the round's folder.
        replayed: its database and its clock.
    """
    (url, clock), turn_s = replayed, stage.settings.turn_s
    api, page = (f"http://127.0.0.1:{port}" for port in stage.ports)
    is_first = not children.runs("dashboard")
    pace = {f"FORESHOCK_INTERVALS__{loop}_S": str(turn_s) for loop in ("SCORE", "POLICY")}
    # Between two scrapes much replayed time goes by: that is no silence.
    pace["FORESHOCK_SILENT_AFTER_S"] = str(max(900.0, _SILENT_SCRAPES * turn_s * clock.speed))
    pace["FORESHOCK_INVENTORY__NODES"] = socket.gethostname()  # nodes.csv names the others
    serve = ["serve", "--port", str(stage.ports[0]), "--replay-clock", str(clock)]
    serve += ["--config", str(children.directory / "server.yaml")]
    children.start("API", serve, {**pace, "FORESHOCK_DB": url})
    if is_first:
        children.start("dashboard", ["dashboard", "--server", api, "--port", str(stage.ports[1])])
    children.wait_for(f"{api}/livez", _PATIENCE_S)
    if is_first:
        print_text(f"API {api}")
    follow = ["--config", str(children.directory / "sidecar.yaml")]
    follow += [argument for source in sources for argument in ("--fleet-source", source)]
    spool = ["--spool", str(own / "spool"), "--port", "0", "--scrape-interval", str(turn_s)]
    node = ["--node", socket.gethostname()]
    often = {"FORESHOCK_ROLLUP_INTERVAL_S": str(turn_s)}
    children.start("sidecar", ["sidecar", "--server", api, *node, *follow, *spool], often)
    if is_first:
        children.wait_for(f"{page}/_stcore/health", _PATIENCE_S)
        print_text(f"Dashboard {page}")
        if stage.settings.browser and os.isatty(1):
            webbrowser.open(page)


def replay_logs(feed: Feeder, clock: ReplayClock, children: Children) -> None:
    """Let the logs grow until the replay is to begin again; where it is not, until somebody stops us."""
    over = False
    while True:
        moment = clock()
        feed.feed(moment)
        children.check()
        if not over and moment >= clock.end:
            over = True
            print_text(f"the replay is over: {_then(clock)}", err=True)
        if clock.again is not None and real_clock() >= clock.again:
            return
        time.sleep(_TICK_S)


def _then(clock: ReplayClock) -> str:
    if clock.again_after_s is not None:
        return f"it begins again in {clock.again_after_s:.0f} s; Ctrl-C ends the demo"
    return (
        "the pages stay as they are until Ctrl-C. Start the demo anew with another --db to see it again, or without "
        "one to have it begin again by itself"
    )

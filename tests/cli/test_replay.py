"""The demo's replay: which stretch, what is fed when, what the exporter answers."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from real.patience import patience

from cli.commands import demo
from cli.commands.demo import DemoReplay, DemoSettings, play, replay_logs
from cli.console.errors import Failure
from cli.processes.children import Children
from cli.replay.clock import ReplayClock, read_clock
from cli.replay.exporter import LEAD, Feeder, Stretch, choose_stretch, exporter, feeder
from cli.replay.tape import read_tape
from parsers.pages import devices_of
from parsers.text.parser import Context
from simulator.output.archive import OutputLine
from simulator.simulation import SimulatedCluster, simulate
from simulator.site import SimulationSettings

T0 = datetime(2025, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    """A small cluster with a few failures."""
    return simulate(SimulationSettings(nodes=32, days=60, seed=4, rate_per_1000_node_days=12.0))


def test_the_stretch_holds_a_failure_that_could_be_seen_coming(cluster: SimulatedCluster) -> None:
    """It begins long enough before the failure, which stops the run."""
    stretch = choose_stretch(cluster)
    shown = [
        f
        for f in cluster.failures
        if f.visible and f.outage and cluster.settings.moment(f.fault_ms) - LEAD == stretch.start
    ]
    assert len(shown) == 1
    assert stretch.end <= cluster.settings.moment(cluster.settings.length_ms)


def test_most_of_the_time_is_history(cluster: SimulatedCluster) -> None:
    """A model needs failures to learn from."""
    settings = cluster.settings
    assert choose_stretch(cluster).start >= settings.moment(int(settings.length_ms * 0.6))


def test_without_a_visible_failure_the_last_days_are_shown() -> None:
    """A calm cluster is replayed all the same."""
    calm = simulate(SimulationSettings(nodes=8, days=20, seed=3, rate_per_1000_node_days=0.01))
    stretch = choose_stretch(calm)
    assert stretch.end == calm.settings.moment(calm.settings.length_ms)
    assert stretch.start < stretch.end


def test_a_line_is_written_when_its_moment_comes_and_not_before(tmp_path: Path) -> None:
    """Two lines, a minute apart, into two files."""
    lines = [OutputLine(T0, "kernel", "one"), OutputLine(T0 + timedelta(minutes=1), "training/llm", "two")]
    feed = Feeder(lines, tmp_path)
    assert feed.feed(T0 - timedelta(seconds=1)) == 0
    assert feed.feed(T0) == 1
    assert (tmp_path / "kernel.log").read_text() == "one\n"
    assert not (tmp_path / "training/llm").exists()
    assert feed.feed(T0 + timedelta(hours=1)) == 1
    assert (tmp_path / "training/llm").read_text() == "two\n"
    assert feed.waiting == 0


def test_lines_of_one_file_keep_their_order(tmp_path: Path) -> None:
    """What is due at once is appended as it was written."""
    feed = Feeder([OutputLine(T0 + timedelta(seconds=i), "kernel", str(i)) for i in range(50)], tmp_path)
    for second in (10, 20, 60):
        feed.feed(T0 + timedelta(seconds=second))
    assert (tmp_path / "kernel.log").read_text().split() == [str(i) for i in range(50)]


def test_every_target_is_a_source_of_the_sidecar(tmp_path: Path) -> None:
    """Each file comes with its format: the sidecar follows files that are not there yet."""
    feed = Feeder([OutputLine(T0, "kernel", "x"), OutputLine(T0, "training/llm", "y")], tmp_path)
    assert feed.sources() == [f"file:{tmp_path}/kernel.log:kernel", f"file:{tmp_path}/training/llm:training"]


def test_the_feeder_of_a_stretch_holds_its_lines_only(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """Nothing before the start, nothing after the end."""
    stretch = choose_stretch(cluster)
    feed = feeder(cluster, stretch, tmp_path)
    assert feed.waiting > 100
    assert feed.feed(stretch.start) == 0
    feed.feed(stretch.end)
    assert feed.waiting == 0


def test_the_exporter_shows_the_gpus_of_the_replayed_moment(cluster: SimulatedCluster) -> None:
    """A scrape gives samples of every node that reports, with the replay's time, not the real one."""
    stretch = choose_stretch(cluster)
    moment = stretch.start + timedelta(hours=1)
    clock = ReplayClock(moment, moment, epoch=T0, speed=1.0)
    with exporter(cluster, clock) as url:
        text = httpx2.get(url, timeout=patience(5)).text
    found = devices_of(text, Context())
    assert len({sample.node for sample in found}) > cluster.settings.nodes // 2
    assert all(abs(sample.time - moment) <= timedelta(hours=1) for sample in found)


def test_the_demo_says_when_its_replay_is_over_and_what_to_do_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once; what was still to be written is written first."""

    class Watched(Children):
        """Three looks at the children, then somebody stops the demo."""

        looks = 0

        def check(self) -> None:
            """All run."""
            self.looks += 1
            if self.looks == 3:
                raise KeyboardInterrupt

    feed = Feeder([OutputLine(T0, "kernel", "last")], tmp_path)
    with pytest.raises(KeyboardInterrupt):
        replay_logs(feed, ReplayClock(T0, T0, epoch=T0, speed=1.0), Watched(tmp_path))
    assert (tmp_path / "kernel.log").read_text() == "last\n"
    said = capsys.readouterr().err
    assert said.count("the replay is over: the pages stay as they are until Ctrl-C. Start the demo anew") == 1


def test_the_demo_begins_its_replay_again_from_the_same_history(
    tmp_path: Path, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each round has its own clock, logs, spool and copy of the database; the dashboard stays, the rest starts anew."""

    class Recorded(Children):
        """Children that are written down and never run."""

        def __init__(self, directory: Path) -> None:
            super().__init__(directory)
            self.said: list[tuple[str, str]] = []

        def runs(self, name: str) -> bool:
            """Started once."""
            return ("start", name) in self.said

        def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
            """Written down; the API's database is what the history is, and is changed."""
            self.said.append(("start", name))
            if name == "API":
                clocks.append(arguments[arguments.index("--replay-clock") + 1])
                database = Path((environment or {})["FORESHOCK_DB"].removeprefix("sqlite:///"))
                assert database.read_text() == "history"
                database.write_text("what came of it")

        def wait_for(self, url: str, patience_s: float) -> None:
            """It answers."""

        def stop(self, *names: str) -> None:
            """Written down."""
            self.said += [("stop", name) for name in names]

    monkeypatch.setattr(demo, "_PAUSE_S", 0.0)
    (history := tmp_path / "history.db").write_text("history")
    stretch = Stretch(choose_stretch(cluster).start, choose_stretch(cluster).start + timedelta(seconds=1))
    settings = DemoSettings(32, 60, 4, 1e6, None, 0, 0, browser=False)
    stage = DemoReplay(settings, tmp_path, cluster, stretch, read_tape(stretch.start), history, (1, 2))
    children, clocks = Recorded(tmp_path), list[str]()
    for number in (1, 2):
        play(stage, children, number)
    again, round_ = [("start", "API"), ("start", "sidecar")], [("stop", "API"), ("stop", "sidecar")]
    assert children.said == [again[0], ("start", "dashboard"), again[1], *round_, *again, *round_]
    first, second = map(read_clock, clocks)
    assert first.epoch < second.epoch
    assert (first.start, first.end) == (second.start, second.end)
    assert not list(tmp_path.glob("round-*"))
    printed = capsys.readouterr()
    assert printed.out.count("Dashboard http://127.0.0.1:2") == 1
    assert printed.err.count("the replay is over: it begins again in 0 s") == 2


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Failure("the API stopped by itself")])
def test_what_writes_in_a_round_s_folder_stops_before_the_folder_goes(
    tmp_path: Path, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    """However the round ends; else the folder fills while it is removed, and that hides why it ended."""
    stopped: list[tuple[tuple[str, ...], bool]] = []

    class Watched(Children):
        """Children of which none runs."""

        def stop(self, *names: str) -> None:
            """Noted, with whether the folder is still there."""
            stopped.append((names, bool(list(tmp_path.glob("round-1-*")))))

    def fail(*_: object) -> None:
        raise end

    monkeypatch.setattr(demo, "_start", fail)
    start = choose_stretch(cluster).start
    stretch = Stretch(start, start + timedelta(seconds=1))
    settings = DemoSettings(32, 60, 4, 1e6, "sqlite://", 0, 0, browser=False)
    stage = DemoReplay(settings, tmp_path, cluster, stretch, read_tape(start), None, (1, 2))
    with pytest.raises(type(end)) as caught:
        play(stage, Watched(tmp_path), 1)
    assert caught.value is end
    assert stopped == [(("API", "sidecar"), True)]
    assert not list(tmp_path.glob("round-*"))


@pytest.mark.parametrize(("nodes", "seconds"), [(8, 2.0), (64, 2.0), (1250, 25.0), (2000, 40.0)])
def test_a_large_demo_samples_less_often(nodes: int, seconds: float) -> None:
    """A scrape must be read and kept before the next one is due."""
    assert DemoSettings(nodes, 60, 9, 600.0, None, 0, 0, browser=False).turn_s == seconds

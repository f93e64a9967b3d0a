"""How a run saves now: by its newest attempt that tells enough; and all advice goes by the same figures."""

import shutil
from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from cli.main import foreshock
from goodput.advice.gains import gains
from goodput.advice.reading import checkpoint_advice, read_history
from goodput.advice.run_history import model_of
from goodput.ledger import Ledger
from goodput.reading.ledgers import read_ledgers
from goodput.timeline import Segment
from goodput.wall_time.saves import interval_s, save_s, saves_now
from simulator.output.archive import write_archive
from simulator.simulation import simulate
from simulator.site import SimulationSettings


def saves(stalls_s: Sequence[float], every_s: float = 100.0, since_s: float = 0.0) -> list[Segment]:
    """Saves with so much work between them."""
    found, clock = [], round(since_s * 1000)
    for stall in stalls_s:
        clock += round(every_s * 1000)
        found.append(Segment(clock, clock + round(stall * 1000), "checkpoint_save"))
        clock = found[-1].end_ms
    return found


def test_the_newest_attempt_with_three_saves_tells() -> None:
    """Not the older one, that saved otherwise; not the newest one, that saved twice."""
    old, now, newest = saves([60.0] * 9), saves([4.0] * 3, since_s=5_000), saves([1.0] * 2, since_s=9_000)
    assert saves_now([old, now, newest, []]) == tuple(now)
    assert saves_now([old, now[:2], newest]) == tuple(old)


def test_where_no_attempt_has_three_all_saves_count() -> None:
    """A run that fails often may never finish three."""
    first, second = saves([10.0, 20.0]), saves([30.0], since_s=5_000)
    assert saves_now([first, [], second]) == (*first, *second)
    assert saves_now([]) == ()


def test_the_stall_is_the_mean_and_the_interval_the_median() -> None:
    """Two levels: the disk's share of the stalls counts; one gap that a stop stretched does not."""
    levels = [*saves([4.0, 4.0, 4.0, 4.0, 54.0]), *saves([4.0], every_s=9_000.0, since_s=600)]
    assert save_s(levels) == pytest.approx((5 * 4 + 54) / 6)
    assert interval_s(levels) == 100.0
    assert (save_s([]), interval_s([]), interval_s(levels[:1])) == (None, None, None)


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> sa.Engine:
    """A cluster whose runs change their way of saving from attempt to attempt."""
    folder = tmp_path_factory.mktemp("varied")
    write_archive(simulate(SimulationSettings(48, 20, 5, training="varied")), folder / "archive")
    shutil.rmtree(folder / "archive" / "telemetry")  # says nothing of runs
    url = f"sqlite:///{folder / 'foreshock.db'}"
    result = CliRunner().invoke(foreshock, ["ingest", str(folder / "archive"), "--db", url])
    assert result.exit_code == 0, result.output
    return sa.create_engine(url)


@pytest.fixture(scope="module")
def changed(varied: sa.Engine) -> Ledger:
    """The run whose stalls changed most."""
    with varied.connect() as connection:
        return max(
            read_ledgers(connection), key=lambda one: abs((save_s(one.saves) or 0) - (save_s(one.saves_now) or 0))
        )


def test_every_piece_of_advice_goes_by_the_same_figures(varied: sa.Engine, changed: Ledger) -> None:
    """Stall, interval and way back of the advised interval are those of the gains."""
    assert save_s(changed.saves_now) != pytest.approx(save_s(changed.saves), rel=0.1)
    with varied.connect() as connection:
        inputs = checkpoint_advice(connection, changed.run)["inputs"]
        history = read_history(connection, changed.run)
    model = model_of(history)
    assert (inputs["save_s"], inputs["interval_s"]) == (model.save_s, model.interval_s)
    assert (inputs["save_s"], inputs["interval_s"]) == (save_s(changed.saves_now), interval_s(changed.saves_now))
    assert inputs["restart_s"] == pytest.approx(float(model.back_s))
    assert inputs["failures"] / inputs["node_days"] == pytest.approx(float(model.rate) * 86_400 / history.nodes)
    levers = {gain.lever: gain for gain in gains(history)}
    assert levers["stall of a save, in the background"].now == inputs["save_s"]


def test_both_advise_the_same_interval(varied: sa.Engine, changed: Ledger) -> None:
    """It follows from the same stall and failures."""
    with varied.connect() as connection:
        advised = checkpoint_advice(connection, changed.run)["interval_s"]
        levers = {gain.lever: gain for gain in gains(read_history(connection, changed.run))}
    assert levers["checkpoint interval"].then == pytest.approx(advised)

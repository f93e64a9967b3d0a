"""What a replayed policy saved of what the runs lost, and what it took: each rule at its borders."""

from typing import Any

import pytest

from schedulers.backtest.episode import Episode, ReplayResult, ReplaySpan
from schedulers.backtest.measures import NodeService
from schedulers.backtest.savings import JobPlacement, ReplayHistory, Savings, account
from schedulers.policy.settings import Costs
from store.records.outage import Outage
from store.runs.losses import Loss

from .cluster import HOUR, NOW

SPAN = ReplaySpan(NOW, NOW + 100 * HOUR)
COSTS = Costs(save_s=360.0, restart_s=1800.0)
HOUR_MS = 3_600_000
# Two nodes in the job, two idle; a node has 8 GPUs.
FLEET = tuple(NodeService(node, 8) for node in "abcd")


def asked(since: float, until: float | None, action: Any = "avoid", node: str = "a", **more: Any) -> Episode:
    """An episode by hours; job hints name their run."""
    end = None if until is None else NOW + until * HOUR
    run = "r" if action in ("checkpoint", "swap", "requeue") else None
    return Episode(f"h{since}{node}", node, action, NOW + since * HOUR, end, "why", more.get("held"), run)


def loss(time: float = 30.0, **more: Any) -> Loss:
    """An interruption: two hours of work and half an hour of restart of 16 GPUs, 40 GPU-hours."""
    facts: dict[str, Any] = {
        "run": "r", "number": 0, "time": NOW + time * HOUR, "cause": "hardware", "code": "xid:79", "node": "a",
        "device": None, "leaf": None, "driver": None, "incident": None, "lost_work_ms": 2 * HOUR_MS,
        "restart_ms": HOUR_MS // 2, "lost_gpu_ms": 40 * HOUR_MS,
    }  # fmt: skip
    return Loss(**(facts | more))


def job(start: float = 20.0, end: float | None = 30.25, nodes: str = "ab", run: str = "r") -> JobPlacement:
    """A job by hours."""
    return JobPlacement(run, NOW + start * HOUR, None if end is None else NOW + end * HOUR, frozenset(nodes))


def saved(
    *episodes: Episode,
    losses: tuple[Loss, ...] = (loss(),),
    jobs: tuple[JobPlacement, ...] = (job(),),
    outages: tuple[Outage, ...] = (),
    fleet: tuple[NodeService, ...] = FLEET,
    costs: Costs = COSTS,
) -> Savings:
    """The savings of a span of 100 hours."""
    return account(ReplayResult(SPAN, 1, episodes, ()), ReplayHistory(losses, jobs, outages, fleet), costs)


def outage(node: str, start: float, end: float | None) -> Outage:
    """An outage by hours."""
    last = None if end is None else NOW + end * HOUR
    return Outage(node, NOW + start * HOUR, last, "DOWN", "x", None, False, "hardware")


def test_no_action_saves_and_takes_nothing() -> None:
    """What was lost is told nevertheless."""
    found = saved()
    assert (found.interruptions, found.lost_gpu_h, found.unknown) == (1, 40.0, 0)
    assert (found.saved_gpu_h, found.net_gpu_h, found.net_at_worst_gpu_h) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("episode", "averted"),
    [
        (asked(10, 25), 1),
        (asked(10, None), 1),
        (asked(10, 25, "cordon"), 1),
        (asked(10, 25, "drain"), 1),
        (asked(10, 25, "watch"), 0),
        (asked(10, 20), 0),  # it ended when the job was started
        (asked(10, 20.01), 1),
        (asked(20, 25), 0),  # it was made with the start: too late
        (asked(19.99, 25), 1),
        (asked(21, 40), 0),  # the job ran already
        (asked(10, 25, node="b"), 0),  # another's
        (asked(10, 25, held="budget: x"), 1),  # what a budget turned into an avoid is one
        (asked(10, 25, "cordon", held="waits for a person: x"), 0),
    ],
)
def test_an_interruption_is_averted_where_its_node_was_kept_off_when_the_job_was_started(
    episode: Episode, averted: int
) -> None:
    """A hint that stood then, of those that keep work off."""
    found = saved(episode)
    assert (found.averted, found.averted_gpu_h) == (averted, 40.0 * averted)


def test_what_another_node_would_not_have_helped_is_not_averted() -> None:
    """Of a program, of nobody knows what, of a switch, of a job that is not known."""
    hint = asked(10, 25)
    for cause, averted in (
        ("application", 0),
        ("storage", 0),
        ("unknown", 0),
        ("driver", 1),
        ("fabric", 1),
        ("host", 1),
    ):
        assert saved(hint, losses=(loss(cause=cause),)).averted == averted
    assert saved(hint, losses=(loss(node=None),)).averted == 0
    assert saved(hint, losses=(loss(node="d"),)).averted == 0
    assert saved(asked(10, 25, node="d"), losses=(loss(node="d"),)).averted == 0
    assert saved(hint, jobs=()).averted == 0
    assert saved(hint, jobs=(job(run="other"),)).averted == 0


def test_the_job_is_the_one_that_its_run_started_last() -> None:
    """The first start had the node kept off, the second had not; nor does one that came later count."""
    jobs = (job(12, 15), job(20, 31), job(32, 40))
    assert saved(asked(10, 14), jobs=jobs).averted == 0
    assert saved(asked(16, 21), jobs=jobs).averted == 1
    assert saved(asked(31, 33), jobs=jobs).averted == 0


def test_only_with_idle_nodes_enough() -> None:
    """Two are idle: out, of another job, hinted at or not in service they are none; each kept off wants one."""
    hint = asked(10, 25)
    both = (hint, asked(10, 25, node="b"))
    assert saved(*both).averted == 1
    for short in (
        saved(*both, asked(10, 25, node="c")),
        saved(*both, outages=(outage("c", 19, 21),)),
        saved(*both, outages=(outage("c", 19, None),)),
        saved(*both, jobs=(job(), job(19, 22, "c", run="s"))),
        saved(*both, jobs=(job(), job(19, None, "c", run="s"))),
        saved(*both, fleet=(*FLEET[:2], NodeService("c", 8, NOW + 21 * HOUR), FLEET[3])),
        saved(*both, fleet=(*FLEET[:2], NodeService("c", 8, None, NOW + 20 * HOUR), FLEET[3])),
    ):
        assert (short.averted, short.short, short.averted_gpu_h) == (0, 1, 0.0)
    for enough in (
        saved(*both, outages=(outage("c", 18, 20), outage("c", 21, 22))),
        saved(*both, fleet=(*FLEET[:2], NodeService("c", 8, NOW + 20 * HOUR), FLEET[3])),
        saved(*both, jobs=(job(), job(18, 20, "c", run="s"), job(21, 22, "c", run="t"))),
        saved(*both, asked(10, 19, node="c"), asked(21, 25, node="c")),
    ):
        assert (enough.averted, enough.short) == (1, 0)


def test_the_share_averted_counts() -> None:
    """Of the GPU-hours: the spare may fail as well."""
    found = saved(asked(10, 25), costs=Costs(averted=0.25))
    assert (found.averted, found.averted_gpu_h) == (1, 10.0)


def test_what_is_of_unknown_size_or_outside_of_the_span_is_in_no_sum() -> None:
    """It is counted apart, or not at all."""
    found = saved(asked(10, 25), losses=(loss(lost_gpu_ms=None), loss(100.0), loss(-0.1)), jobs=(job(20, None),))
    assert (found.interruptions, found.unknown, found.averted, found.lost_gpu_h) == (1, 1, 0, 0.0)


@pytest.mark.parametrize(
    ("since", "hours"),
    [
        (29.0, 2 - 0.9),  # the work of the 54 minutes since it was done is lost still
        (29.9, 2.0),  # done at the very moment
        (29.91, 0.0),  # not done yet
        (27.0, 0.0),  # the job had saved since then anyhow
        (19.9, 0.0),  # another job
        (30.1, 0.0),
    ],
)
def test_a_checkpoint_saves_the_work_up_to_it(since: float, hours: float) -> None:
    """Of 16 GPUs; it takes six minutes of them, where the job runs."""
    found = saved(asked(since, since + 0.25, "checkpoint", node="b"), losses=(loss(cause="application"),))
    assert found.saved_by_checkpoint_gpu_h == pytest.approx(16 * hours)
    made = int(20 <= since < 30.25)
    assert found.checkpoints == made
    assert found.checkpoint_gpu_h == pytest.approx(1.6 * made)


def test_a_checkpoint_takes_the_time_of_the_job_that_was_asked() -> None:
    """Not of another run's at the same time, nor of one of its own run that has ended."""
    for other in (job(nodes="c", run="s"), job(12, 15, "a"), job(12, 24, "a")):
        found = saved(asked(24, 24.1, "checkpoint"), jobs=(other, job()))
        assert found.checkpoint_gpu_h == pytest.approx(1.6)


def test_the_newest_checkpoint_that_was_done_counts() -> None:
    """Not one that was still being written."""
    hints = [asked(since, since + 0.25, "checkpoint", node="b") for since in (28.5, 29.5, 29.95)]
    found = saved(*hints)
    assert found.saved_by_checkpoint_gpu_h == pytest.approx(16 * (2 - 0.4))
    assert found.checkpoints == 3


@pytest.mark.parametrize("action", ["swap", "requeue"])
@pytest.mark.parametrize(
    ("since", "hours"),
    [
        (30.0, 0.25),  # from the fault until the job was ended, a quarter of an hour later
        (29.9, 0.25),  # by a clock that is behind
        (29.8, 0.0),
        (30.1, 0.15),
        (30.25, 0.0),
    ],
)
def test_a_move_saves_the_time_in_which_nobody_had_noticed(action: Any, since: float, hours: float) -> None:
    """Of 16 GPUs."""
    found = saved(asked(since, since + 0.1, action))
    assert found.saved_by_move_gpu_h == pytest.approx(16 * hours)


def test_no_move_saves_more_than_the_way_back() -> None:
    """Nor anything of a job that has not ended."""
    late = (job(20, 40),)
    assert saved(asked(30, 30.25, "swap"), jobs=late).saved_by_move_gpu_h == pytest.approx(16 * 0.5)
    assert saved(asked(30, 30.25, "swap"), jobs=(job(20, None),)).saved_by_move_gpu_h == 0.0


def test_a_move_of_a_job_that_was_not_stopped_takes_a_restart_of_all_of_it() -> None:
    """Half an hour of 16 GPUs; none where it was stopped while the hint stood, by any of its nodes."""
    for since, until, needless in ((28, 29, 1), (29.8, 30.1, 0), (30.1, 30.2, 0), (28, 30, 0), (28, 29.9, 1)):
        found = saved(asked(since, until, "swap"), losses=(loss(node="b"),))
        assert (found.needless_moves, found.moves_gpu_h) == (needless, 8.0 * needless)
    assert saved(asked(30, 30.1, "swap"), losses=(loss(run="other"),)).needless_moves == 1
    assert saved(asked(28, 29, "checkpoint")).needless_moves == 0


def test_a_job_is_not_asked_about_a_node_that_it_would_not_have() -> None:
    """Kept off before the start, or moved off before."""
    moved, again = asked(25, 25.1, "swap"), asked(27, 27.1, "swap")
    assert saved(moved, again).needless_moves == 1
    assert saved(moved, asked(27, 27.1, "swap", node="b")).needless_moves == 2
    assert saved(moved, asked(27, 27.1, "checkpoint")).checkpoints == 0
    assert saved(asked(24, 24.1, "checkpoint"), moved).checkpoints == 1
    assert saved(asked(10, 99, "cordon"), moved, losses=()).needless_moves == 0
    assert saved(asked(10, 99), asked(24, 24.1, "checkpoint"), losses=()).checkpoints == 0


def test_what_is_averted_saves_nothing_twice() -> None:
    """Neither the checkpoint of the same job nor the swap counts for it."""
    hints = (asked(10, 25), asked(29, 29.25, "checkpoint", node="b"), asked(30, 30.1, "swap", node="b"))
    found = saved(*hints)
    assert (found.averted_gpu_h, found.saved_by_checkpoint_gpu_h, found.saved_by_move_gpu_h) == (40.0, 0.0, 0.0)


def test_holds_and_avoids_take_the_hours_of_nodes_that_were_not_out() -> None:
    """Apart: an avoided node that idles costs no work where others are free."""
    found = saved(
        asked(40, 50, "cordon"),
        asked(60, 65, "drain", node="b"),
        asked(70, 90, node="c"),
        asked(70, 90, "watch", node="d"),
        outages=(outage("c", 80, 95),),
    )
    assert (found.held_gpu_h, found.avoided_gpu_h) == (8 * 15, 8 * 10)
    assert found.net_gpu_h == found.saved_gpu_h - 8 * 15
    assert found.net_at_worst_gpu_h == found.net_gpu_h - 8 * 10


def test_the_net_takes_all_of_it() -> None:
    """A save of 1.6 GPU-hours, a needless move of 8."""
    found = saved(asked(24, 24.1, "checkpoint"), asked(25, 25.1, "swap"))
    assert found.net_gpu_h == pytest.approx(-1.6 - 8.0)

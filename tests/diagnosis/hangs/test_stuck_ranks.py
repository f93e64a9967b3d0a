"""The missing rank: found behind its victims, across process groups, on its node and GPU."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from diagnosis.causes.stored_scene import read_scene
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.hangs.placement import RankPlacements, placements_of
from diagnosis.hangs.stuck_ranks import StuckRanks, stuck_ranks
from diagnosis.symptoms.folding import SymptomFold
from store.database.connections import writing
from store.events.append import append_events, append_jobs
from store.records.event import Event, with_id
from store.records.job import Job
from store.runs.rank_set import text_of_ranks

T = datetime(2026, 3, 1, 4, 0, tzinfo=UTC)
RUN = "llm-70b"


def placed(nodes: int = 128, run: str = RUN) -> RankPlacements:
    """A job on so many nodes, that runs."""
    return placements_of([Job("1", run, "RUNNING", T, T, None, nodes, f"gpu-[001-{nodes:03d}]")])


def wait(group: str, at_s: float = 0.0, node: str | None = None, **told: Any) -> Event:
    """A report of one group."""
    attributes = {"run": RUN, "group": group, **told}
    return Event(T + timedelta(seconds=at_s), node, "training", "collective_wait", attributes=attributes)


def told(events: list[Event], *keys: str) -> list[Any]:
    """What each event tells under these keys."""
    return [tuple(event.attributes.get(key) for key in keys) for event in events]


def test_the_one_of_1024_that_reports_nothing_is_the_missing_one() -> None:
    """1,023 ranks time out: the one that does not is named, with its node and GPU."""
    event = wait("0(default_pg)", ranks="0-516,518-1023", world=1024, last_enqueued=21, last_completed=20)
    (found,) = stuck_ranks([event], placed())
    assert (found.kind, found.node, found.device.type, found.device.index) == ("rank_missing", "gpu-065", "gpu", 5)
    assert told([found], "rank", "how", "collective", "reported", "waiting") == [
        (517, "silent", 21, 1023, "0-516,518-1023")
    ]


def test_nobody_is_missing_where_a_report_does_not_name_all_its_ranks() -> None:
    """Ranks that a text has no room for have reported all the same, in this group or another."""
    whole = wait("", ranks="0-511", last_enqueued=21, last_completed=20)
    cut = wait("0(default_pg)", ranks="512-900,+122", world=1024, last_enqueued=21, last_completed=20)
    left = wait("0(default_pg)", ranks="512-900", world=1024, last_enqueued=21, last_completed=20, ranks_left_out=122)
    assert stuck_ranks([whole, cut], placed()) == stuck_ranks([left], placed()) == []


def test_a_rank_that_is_late_because_it_waits_elsewhere_is_a_victim() -> None:
    """Rank 5 hangs outside; its tensor group waits for it, the pipeline for the tensor group, the replica for both."""
    reports = [
        wait("tp0", ranks="4-7", last_enqueued="9:5;10:4,6-7", last_completed=9, members="4-7"),
        wait("pp1", ranks="4,12", last_enqueued="30:4;31:12", last_completed=30, members="4,12"),
        wait("dp3", ranks="12,20", last_enqueued="2:12;3:20", last_completed=2, members="12,20"),
    ]
    for order in (reports, reports[::-1]):
        assert told(stuck_ranks(order, placed()), "rank", "group", "how") == [(5, "tp0", "not_entered")]


def test_a_stopped_process_goes_before_all_others() -> None:
    """Its own node says that it does not run, though it has entered the collective."""
    reports = [
        wait("default", node="gpu-001", ranks="0-7", last_enqueued=7, last_completed=6, stopped="3"),
        wait("default", node="gpu-002", ranks="8-15", last_enqueued=7, last_completed=6),
    ]
    assert told(stuck_ranks(reports, placed(2)), "rank", "how") == [(3, "stopped")]


def test_ranks_that_wait_for_each_other_are_the_programs_fault() -> None:
    """Two groups in another order on each: no rank is missing, and none is named."""
    reports = [
        wait("a", ranks="0-1", last_enqueued="4:0;5:1", last_completed=4),
        wait("b", ranks="0-1", last_enqueued="4:1;5:0", last_completed=4),
    ]
    found = stuck_ranks(reports, placed(1))
    assert {event.kind for event in found} == {"collective_mismatch"}
    assert {(event.node, event.cause) for event in found} == {(None, "application")}


def test_different_operations_at_one_number_are_a_mismatch() -> None:
    """Rank 1 calls a broadcast where rank 0 reduces."""
    reports = [
        wait("0(default_pg)", ranks=0, last_enqueued=8, last_completed=7, operation="ALLREDUCE"),
        wait("0(default_pg)", ranks=1, last_enqueued=8, last_completed=7, operation="BROADCAST"),
    ]
    (found,) = stuck_ranks(reports)
    assert (found.kind, found.attributes["operations"]) == ("collective_mismatch", "ALLREDUCE, BROADCAST")


def test_nobody_is_named_while_most_reports_are_yet_to_come() -> None:
    """Ten of 1,024 dumps have come, then 600, then all but one."""
    state = StuckRanks()
    state.placements = placed()
    state.take(wait("0(default_pg)", ranks="0-9", world=1024, last_enqueued=21, last_completed=20))
    assert state.events(T + timedelta(seconds=60)) == []
    state.take(wait("0(default_pg)", 1.0, ranks="10-610", world=1024, last_enqueued=21, last_completed=20))
    assert state.events(T + timedelta(seconds=1.2)) == []
    state.take(wait("0(default_pg)", 2.0, ranks="611-699,701-1023", world=1024, last_enqueued=21, last_completed=20))
    assert told(state.events(T + timedelta(seconds=2.1)), "rank") == [(700,)]


def test_a_rank_that_dumps_late_is_no_longer_missing() -> None:
    """What was said of it is taken back."""
    state = StuckRanks()
    state.take(wait("0(default_pg)", ranks="0-6", world=8, last_enqueued=3, last_completed=2))
    assert told(state.events(), "rank") == [(7,)]
    state.take(wait("0(default_pg)", 1.0, ranks=7, world=8, last_enqueued=3, last_completed=2))
    assert state.events() == []


def test_where_ranks_stood_in_a_hang_that_is_over_makes_nobody_late_in_the_next() -> None:
    """The first node to report knows its own numbers, and those of the other node are old."""
    state = StuckRanks()
    for number, over in ((100, None), (100, True)):
        for node, ranks in (("gpu-001", "0-3"), ("gpu-002", "4-7")):
            numbers = {"last_enqueued": number, "last_completed": number if over else number - 1, "over": over}
            state.take(wait("d", number, node=node, ranks=ranks, world=8, **numbers))
    assert state.events() == []
    now = T + timedelta(seconds=150)
    state.take(wait("d", 150, node="gpu-001", ranks="0-3", world=8, last_enqueued=150, last_completed=149))
    assert state.events(now) == []
    state.take(
        wait("d", 151, node="gpu-002", ranks="4-7", world=8, last_enqueued="149:5;150:4,6-7", last_completed=149)
    )
    assert told(state.events(now), "rank") == [(5,)]


def test_work_that_goes_on_ends_the_hang() -> None:
    """A new start of the run, or its next iteration."""
    state = StuckRanks()
    state.take(wait("0(default_pg)", ranks="0-6", world=8, last_enqueued=3, last_completed=2))
    state.take(Event(T + timedelta(seconds=9), None, "hook", "iteration", attributes={"run": RUN}))
    assert state.events() == []


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_scene_of_the_store_knows_that_a_hang_is_over(engine: sa.Engine, goes_on: bool) -> None:
    """An iteration after it; what was printed before says nothing."""
    hang = wait("0(default_pg)", 60, ranks="0-6", world=8, last_enqueued=3, last_completed=2)
    work = [Event(T + timedelta(seconds=at_s), None, "hook", "iteration", attributes={"run": RUN}) for at_s in (5, 95)]
    fault = Event(T + timedelta(seconds=100), "gpu-001", "kernel", "xid", 79, "fatal", "hardware")
    with writing(engine).begin() as connection:
        append_jobs(connection, [Job("1", RUN, "RUNNING", T, T, None, 1, "gpu-001")])
        append_events(connection, [with_id(one) for one in (hang, work[0], *work[1:][: int(goes_on)], fault)], T)
        scene = read_scene(connection, RUN, T + timedelta(seconds=110))
    assert scene is not None
    assert ("rank_missing" in {one.kind for one in scene.symptoms}) is not goes_on


def test_a_node_outside_the_job_says_nothing_of_its_ranks() -> None:
    """A node of another job reports that rank 5 is missing. The node that holds the logs has no job, and may."""
    jobs = [Job(run, run, "RUNNING", T, T, None, 1, node) for run, node in ((RUN, "gpu-001"), ("other", "evil-1"))]
    for node, found in (("evil-1", 0), ("login-1", 1), ("gpu-001", 1)):
        event = wait("0(default_pg)", node=node, ranks="0-4,6-7", world=8, last_enqueued=3, last_completed=2)
        assert len(stuck_ranks([event], placements_of(jobs))) == found


def test_collectives_that_are_entered_ahead_make_no_rank_late() -> None:
    """A program runs ahead of its GPU: rank 2 has entered two fewer, but the one that is waited for, too."""
    event = wait("0(default_pg)", ranks="0-3", world=4, last_enqueued="807:3;809:2;811:0-1", last_completed=807)
    assert told(stuck_ranks([event]), "rank", "collective") == [(3, 808)]


def test_a_gpu_that_has_not_begun_what_others_have_is_missing() -> None:
    """Its program has entered the collective, and its GPU does not come to it."""
    event = wait("0(default_pg)", ranks="0-3", world=4, last_enqueued=8, last_started="7:1;8:0,2-3", last_completed=7)
    assert told(stuck_ranks([event]), "rank", "how") == [(1, "not_entered")]


def test_an_address_of_nccls_ras_points_at_the_node() -> None:
    """No job is known; whoever has that address is looked for."""
    report = wait("27a0", ranks="0-2", members="0-3", waiting="0-2", stopped="3", hosts="3=172.16.64.210/3")
    (found,) = stuck_ranks([report])
    assert (found.attributes["rank"], found.attributes["peer"], found.node) == (3, "172.16.64.210", None)


def test_a_receive_waits_for_a_sender_until_that_says_that_it_sends() -> None:
    """Whichever report comes first: where both ends are there, no rank is missing."""
    receive = wait("pp 4->12", ranks=12, members="4,12", waiting="12", absent="4")
    send = wait("pp 4->12", ranks=4, members="4,12", waiting="4")
    assert told(stuck_ranks([receive]), "rank") == [(4,)]
    assert stuck_ranks([receive, send]) == stuck_ranks([send, receive]) == []


def test_a_rank_that_two_nodes_claim_is_placed_by_the_job() -> None:
    """A node's own word of its ranks goes first, unless another says the same."""
    reports = [
        wait("default", node="gpu-002", ranks="0-7", local_ranks="0:0", last_enqueued="2:0;3:1-7", last_completed=2),
        wait("default", node="gpu-001", ranks="0", local_ranks="4:0", last_enqueued=2, last_completed=2),
    ]
    (found,) = stuck_ranks(reports, placed(2))
    assert (found.node, found.device.index) == ("gpu-001", 0)


@pytest.mark.parametrize(
    ("nodes", "ranks", "missing", "node", "gpu"), [(4, "0-1,3", 2, "gpu-003", 0), (2, "0-8,10-15", 9, "gpu-002", 1)]
)
def test_a_gap_in_the_ranks_is_seen_where_nobody_says_how_many_there_are(
    nodes: int, ranks: str, missing: int, node: str, gpu: int
) -> None:
    """Gloo's dumps name no members: the one between those that report is the one, and they tell how many a node has."""
    (found,) = stuck_ranks([wait("0(default_pg)", ranks=ranks, last_enqueued=6, last_completed=5)], placed(nodes))
    assert (found.attributes["rank"], found.node, found.device.index) == (missing, node, gpu)


def test_a_rank_that_hangs_in_the_first_step_is_seen_though_its_partner_never_entered_the_group_of_all() -> None:
    """As gloo's dumps told it when a rank was stopped before its first step: rank 0 waits for it in their own group."""
    reports = [
        wait("1", ranks="0", last_enqueued=1, last_completed=-1),
        wait("2", ranks="2-3", last_enqueued=1, last_completed=1),
        wait("0(default_pg)", ranks="2-3", last_enqueued=1, last_completed=-1),
    ]
    (found,) = stuck_ranks(reports, placed(4))
    assert (found.attributes["rank"], found.attributes["how"], found.node) == (1, "silent", "gpu-002")


def test_many_gaps_tell_nothing() -> None:
    """Every second rank prints its errors elsewhere."""
    assert stuck_ranks([wait("0(default_pg)", ranks="0-62/2", last_enqueued=6, last_completed=5)], placed(8)) == []


def test_the_job_is_found_by_the_reporting_node_where_no_line_names_the_run() -> None:
    """A flight recorder's dump names no run."""
    attributes: dict[str, Any] = {"group": "0(default_pg)", "ranks": "0-6", "world": 8}
    attributes |= {"last_enqueued": 3, "last_completed": 2}
    (found,) = stuck_ranks([Event(T, "gpu-001", "flight", "collective_wait", attributes=attributes)], placed(1))
    assert (found.node, found.device.index, found.run()) == ("gpu-001", 7, RUN)


def test_no_other_node_takes_back_what_a_node_says_of_its_own_ranks() -> None:
    """A node without a job reports that all is well, and later that rank 1 is stopped."""
    own = wait(
        "d", node="gpu-001", ranks="0-3", local_ranks="0:0;1:1;2:2;3:3", last_enqueued=7, last_completed=6, stopped="3"
    )
    lie = wait("d", 1.0, node="login-1", ranks="0-3", last_enqueued=9, last_completed=9)
    worse = wait("d", 2.0, node="login-1", ranks="0-3", last_enqueued=9, last_completed=9, stopped="1")
    assert told(stuck_ranks([own, lie, worse]), "rank", "collective") == [(3, 7)]


def test_one_nodes_word_of_another_nodes_rank_is_a_report() -> None:
    """Of three nodes it is more, and of the node itself."""
    inside = {"last_enqueued": 6, "last_completed": 5}
    for nodes, reporter in ((1, "gpu-001"), (2, "gpu-001"), (3, None)):
        fold = SymptomFold(DeviceGraph())
        fold.place_ranks(placed(8))
        for number in range(nodes):
            ranks = f"{8 * number}-{8 * number + 7}"
            fold.take([wait("0(default_pg)", node=f"gpu-{number + 1:03d}", ranks=ranks, **inside)])
        fold.take([wait("0(default_pg)", node="gpu-001", ranks="0-7", absent="60", world=64, **inside)])
        (found,) = fold.symptoms()
        assert (found.place, found.node) == (Place("gpu", "gpu-008/gpu4"), reporter or "gpu-008")


def progress(node: str, ranks: str, work: list[float], at_s: float) -> Event:
    """What a node's ranks worked a step."""
    attributes: dict[str, Any] = {"run": RUN, "ranks": ranks, "work_ms": ",".join(map(str, work)), "local_ranks": 0}
    return Event(T + timedelta(seconds=at_s), node, "ranks", "rank_progress", attributes=attributes)


def test_the_rank_that_works_longer_than_its_peers_is_slow() -> None:
    """In two looks; one look alone is a hiccup."""
    state = StuckRanks()
    state.placements = placed(2)
    for at_s, slow in ((0, 100.0), (5, 160.0), (6, 160.0)):
        if at_s == 6:
            assert state.events() == []
        state.take(progress("gpu-001", "0-7", [100.0, 101, 99, 100, 100, 102, 98, 100], at_s))
        state.take(progress("gpu-002", "8-15", [100.0, 101, 99, slow, 100, 102, 98, 100], at_s))
    (found,) = state.events()
    assert (found.kind, found.attributes["rank"], found.node) == ("rank_slow", 11, "gpu-002")
    assert found.attributes["lost_share"] == pytest.approx(0.375)


def test_pipeline_stages_of_unequal_work_are_not_slow() -> None:
    """The first stage works half as long again: so do all its ranks."""
    state = StuckRanks()
    for at_s in range(4):
        state.take(progress("gpu-001", "0-7", [150.0] * 8, at_s))
        state.take(progress("gpu-002", "8-15", [100.0] * 8, at_s))
    assert state.events() == []


def test_few_ranks_tell_nothing_of_what_is_usual() -> None:
    """Three of them."""
    state = StuckRanks()
    for at_s in range(4):
        state.take(progress("gpu-001", "0-2", [100.0, 100.0, 300.0], at_s))
    assert state.events() == []


def test_a_straggler_without_a_node_gets_its_node_from_the_job() -> None:
    """Megatron-LM's line names the rank alone."""
    event = Event(T, None, "training", "straggler", attributes={"run": RUN, "rank": 9})
    (found,) = stuck_ranks([event], placed(2))
    assert (found.kind, found.node, found.device.index) == ("rank_slow", "gpu-002", 1)


def test_the_fold_of_symptoms_names_the_missing_ranks_gpu() -> None:
    """The search for a cause reads it there."""
    fold = SymptomFold(DeviceGraph())
    fold.place_ranks(placed())
    fold.take([wait("0(default_pg)", ranks="0-516,518-1023", world=1024, last_enqueued=21, last_completed=20)])
    for _ in range(2):
        assert [(one.place, one.run) for one in fold.symptoms()] == [(Place("gpu", "gpu-065/gpu5"), RUN)]


def test_a_hundred_thousand_dumps_are_taken_one_by_one() -> None:
    """Each names all members; memory and time follow the ranks."""
    state, size = StuckRanks(), 100_000
    for rank in range(size):
        if rank != 777:
            state.take(wait("0(default_pg)", ranks=rank, members=f"0-{size - 1}", last_enqueued=3, last_completed=2))
    (found,) = state.events()
    assert found.attributes["rank"] == 777
    assert found.attributes["waiting"] == text_of_ranks(set(range(size)) - {777})

"""On the real subnet manager of a rail fabric each kind of fault is named first, by its log as it grows.

Twenty faults of ten kinds, two of each; `python -m benchmarks rails` plays a hundred of each.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from real.fabric_acts import KINDS, QUIET_S, drawn, play
from real.fabric_plan import Rails, rail_plan
from real.opensm import fabric
from real.rail_judge import Judgement, LogTail, graph_of, judge_log, names_it

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("opensm")]
FABRIC = Rails(leafs=8, spines=4, hosts=16, rails=8)


def test_every_kind_of_fault_is_named_first_alone_and_after_the_others(tmp_path: Path) -> None:
    """A cable, an uplink, a flap, a leaf, a spine, a host, an adapter, a GUID twice, a port shut, a reboot."""
    plan = rail_plan(FABRIC)
    with fabric(tmp_path, plan=plan, arguments=["-y"]) as sim:
        topology = sim.discover()
        acts = list(play(sim, drawn(plan, KINDS, 2, random.Random(4)), QUIET_S))
        log = sim.log.read_bytes()
    alone = judge_log(log, acts, topology, alone=True)
    together = judge_log(log, acts, topology, alone=False)
    listed = [judge_log(log, acts, topology, alone=alone, with_list=True) for alone in (True, False)]
    assert _wrong(alone) == ""
    assert _wrong(together) == "", [f"{act.kind} {act.target}" for act in acts]
    # With the manager's list of links the cable itself is named, where one end alone was heard, too.
    assert [[one for one in found if not one.right] for found in listed] == [[], []]
    assert [one.answers for one in (*alone, *together) if one.is_wrong_and_sure()] == []


def _wrong(found: Sequence[Judgement]) -> str:
    """The acts that were answered wrongly, a line each."""
    return "\n".join(
        f"{n}: {one.act.kind} {one.act.target}: {one.answers}"
        for n, one in enumerate(found)
        if not one.right and not one.wide
    )


def test_an_old_fault_that_was_cured_does_not_keep_the_first_place(tmp_path: Path) -> None:
    """A leaf is lost and comes back; then one cable of one of its hosts goes."""
    plan = rail_plan(FABRIC)
    cable = plan.cables_of("leaf03")[0]
    with fabric(tmp_path, plan=plan) as sim:
        tail = LogTail(graph_of(sim.discover()))
        sim.unlink("leaf03")
        sim.wait_for_log("Removed port with GUID", times=len(plan.cables_of("leaf03")) - FABRIC.spines + 1)
        sim.rest()
        before = sim.log.read_text().splitlines()
        tail.take(before)
        assert tail.verdicts()[0].name == "leaf03"
        sim.relink("leaf03")
        sim.wait_for_log("Discovered new port with GUID", times=len(plan.cables_of("leaf03")) - FABRIC.spines + 1)
        sim.rest()
        sim.unlink(cable.peer)
        sim.wait_for_log(f"of node:{cable.peer.replace('/', ' ')}", times=2)
        sim.rest()
        tail.take(sim.log.read_text().splitlines()[len(before) :])
    first = tail.verdicts()[0]
    assert names_it(first, (cable.name(), *cable.ends())), first

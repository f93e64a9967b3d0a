"""The real tapes as they are read: one a node and stretch, each sample once, and the tickets."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cli.study.tapes import read_tapes, read_tickets

GWDG = Path(__file__).parents[3] / "fixtures" / "real" / "gwdg"


def test_tapes_that_overlap_are_one() -> None:
    """Eleven tapes of five nodes are nine stretches; no sample is there twice."""
    tapes = read_tapes(GWDG)
    assert (len(tapes), len({tape.node for tape in tapes})) == (9, 5)
    assert all(np.all(np.diff(tape.times) > np.timedelta64(0, "s")) for tape in tapes)
    march = next(tape for tape in tapes if tape.moment(0) == datetime(2025, 3, 8, tzinfo=UTC))
    assert round(march.days) == 16
    assert set(march.gpus_present()) == {0, 4}  # in these tapes a GPU is never gone alone: all four are, with the node
    boots = [march.moment(place) for place in march.boots()]
    assert boots[0] == datetime(2025, 3, 17, 15, 10, tzinfo=UTC)
    assert len(boots) == 4


def test_a_node_whose_gpus_are_gone_is_silent_itself() -> None:
    """What the facts call fewer than four GPUs is a node that answers nothing: no telemetry tells the two apart."""
    lost = {ticket.gpu_lost for ticket in read_tickets(GWDG)} - {None}
    for tape in read_tapes(GWDG):
        for place in range(len(tape.times)):
            if tape.moment(place) in lost and tape.gpus_present()[place] == 0:
                assert not tape.up()[place] or place in tape.boots()


def test_the_tickets_are_those_of_the_facts() -> None:
    """A day each; the moment of the loss where there is one."""
    tickets = read_tickets(GWDG)
    assert len(tickets) == 11
    assert sum(ticket.gpu_lost is not None for ticket in tickets) == 8
    assert tickets[0].day.tzinfo is UTC

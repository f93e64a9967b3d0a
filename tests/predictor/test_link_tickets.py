"""Tickets of links: which get one, and what a technician is to look at, in which order."""

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from fleet_store import day

from predictor.repair.export import TICKET_COLUMNS, tickets, tickets_csv
from predictor.repair.lemons import repair_list
from predictor.repair.link_tickets import LinkSign, link_steps
from store.database.connections import writing
from store.events.append import append_links
from store.hints.hint_log import save_hint
from store.models.scores import LinkScore, save_link_scores
from store.records.event import Device, Event
from store.records.hint import Evidence, Hint, HintLink
from store.records.score import Reason

from .test_links import flap, put

AT = day(30)
FLAPS = Reason("3 link flaps in 7 days, the last 2 days ago", 0.2, ("e",))
ENDS = ("leaf-0 port 2", "gpu-1 port 1 (mlx5_3)")


def score(link: str, own: float, risk: float = 0.3, **more: Any) -> LinkScore:
    """A scoring's row, half a day old."""
    rest = Reason("the base rate of links, and everything else that raises or lowers it", 0.01)
    found = LinkScore(link, ("leaf-0 port 2", "gpu-1 port 1"), 24, day(29.5), risk, (FLAPS, rest), "m", "gpu-1")
    return replace(found, own_risk=own, **more)


def made(engine: sa.Engine, *scores: LinkScore, events: tuple[Event, ...] = ()) -> list[dict[str, Any]]:
    """The tickets as of day 30, of a leaf with four hosts."""
    put(engine, [flap("gpu-1", at) for at in (20, 25, 28)] + list(events))
    cable = {"switch": "leaf-0", "port": 2, "peer": "gpu-1", "peer_port": 1, "peer_type": "hca", "hca": "mlx5_3"}
    with writing(engine).begin() as connection:
        append_links(connection, [cable])
        calm = [score(f"leaf-0/{port}", 0.0, 0.001) for port in (1, 3, 4)]
        save_link_scores(connection, 24, [*scores, *calm])
    with engine.connect() as connection:
        return tickets(connection, repair_list(connection, AT))


def test_a_link_that_flaps_has_a_ticket_with_both_its_ends(any_engine: sa.Engine) -> None:
    """The adapter's name where a cable has one, what was seen of it, the events and the hints on its host."""
    told = HintLink("leaf-0/2", ENDS, 0.3, 24, 0.2, None, 0.02, ("e",), AT)
    hints = [
        Hint("h1", "gpu-1", "watch", "shadow", "foreshock: link", "foreshock", day(29), AT, Evidence(link=told)),
        Hint("h2", "gpu-1", "watch", "expired", "foreshock: risk", "foreshock", day(22), AT, Evidence(score=0.1)),
    ]
    with writing(any_engine).begin() as connection:
        for one in hints:
            save_hint(connection, one, one.created, {})
    (ticket,) = made(any_engine, score("leaf-0/2", 0.2))
    assert (ticket["node"], ticket["link"], ticket["ends"], ticket["part"]) == ("gpu-1", "leaf-0/2", list(ENDS), "link")
    assert (ticket["rack"], ticket["leaf"], ticket["tests"]) == ("r1", "leaf-1", [])
    assert ticket["why"] == "30 % likely to be lost within 24 h: 3 link flaps in 7 days, the last 2 days ago"
    (flaps,) = ticket["faults"]
    assert (flaps["what"], flaps["count"]) == ("link flap", 3)
    assert (flaps["first"], flaps["last"]) == (ticket["first_seen"], ticket["last_seen"])
    assert (ticket["first_seen"], ticket["last_seen"]) == ("2025-01-21T00:00:00.000000Z", "2025-01-29T00:00:00.000000Z")
    with any_engine.connect() as connection:
        assert set(ticket["evidence"]) == set(
            connection.scalars(sa.text("SELECT id FROM events WHERE kind='port_removed'"))
        )
    assert [one["id"] for one in ticket["hints"]] == ["h1"]
    (row,) = csv.DictReader(io.StringIO(tickets_csv([ticket])))
    assert tuple(row) == TICKET_COLUMNS
    assert row["ends"] == " and ".join(ENDS)
    assert len(row["evidence"].split()) == 3


@pytest.mark.parametrize(
    ("found", "listed"),
    [
        (score("leaf-0/2", 0.1), True),
        (score("leaf-0/2", 0.099), False),
        (score("leaf-0/2", 0.2, reasons=(replace(FLAPS, events=()),)), False),
        (score("leaf-0/2", 0.2, time=day(28.9)), False),
        (score("leaf-0/2", 0.2, time=day(30.1)), False),
        (score("leaf-0/33", 0.2, node=None, ends=("leaf-0 port 33", "spine-1 port 1")), True),
    ],
)
def test_a_ticket_takes_a_risk_of_a_tenth_by_the_link_s_own_signs(
    engine: sa.Engine, found: LinkScore, listed: bool
) -> None:
    """Of a scoring within a day; a link between two switches has one as well, of no node."""
    told = made(engine, found)
    assert [one["link"] for one in told] == [found.link] * listed
    assert [one["node"] for one in told] == [found.node] * listed


def test_where_all_links_are_as_bad_none_stands_out(engine: sa.Engine) -> None:
    """Four times what half of the fabric's links have."""
    many = [score(f"leaf-9/{port}", 0.2, 0.3) for port in range(20)]
    assert made(engine, *many) == []


def sign(kind: str, message: str = "", node: str = "gpu-1", **attributes: Any) -> LinkSign:
    """Something that speaks against a link."""
    return LinkSign(kind, node, kind, message, attributes, kind == "pcie_aer")


@pytest.mark.parametrize(
    ("signs", "steps"),
    [
        (
            [sign("link_down")],
            [
                "1. Clean and reseat module and cable at both ends (leaf-0 port 2 and gpu-1 port 1 (mlx5_3)).",
                "2. If it is lost again, swap the module at one end, then that at the other: no reading says which.",
                "3. If that does not help, swap the cable.",
            ],
        ),
        ([sign("bit_errors")], ["1. Clean", "2. If its bit errors go on, swap the module at one end", "3. If"]),
        (
            [sign("link_down"), sign("optics_alarm", "temperature is 78 C", "leaf-0", reading="temperature")],
            [
                "1. Clean",
                '2. If it is lost again, swap the module at leaf-0 (leaf-0 says: "temperature is 78 C").',
                "3. If",
            ],
        ),
        (
            [sign("optics_alarm", "no light comes in", reading="rx_power")],
            ["1. Clean", "2. If its bit errors go on, swap the module at the other end than gpu-1, where too", "3. If"],
        ),
        (
            [sign("pcie_aer", "AER: corrected"), sign("link_down")],
            [
                '1. Look at the adapter of gpu-1 and its slot (gpu-1 says: "AER: corrected").',
                "2. Clean",
                "3. If it is",
                "4. If",
            ],
        ),
    ],
)
def test_the_steps_are_in_order_and_name_the_end_that_readings_name(signs: list[LinkSign], steps: list[str]) -> None:
    """Clean and reseat, then the module, then the cable; where too little light comes in, the other end's module."""
    text = link_steps(signs, ENDS)
    places = [text.find(step) for step in steps]
    assert min(places) == 0
    assert places == sorted(places)


def test_the_number_of_the_module_is_told_where_an_event_has_it(engine: sa.Engine) -> None:
    """Of the newest that does."""
    device = Device("port", uuid="0xa1")
    bad = [
        Event(day(at), "gpu-1", "optics", "optics_alarm", None, "error", "fabric", "none", device, attributes=told)
        for at, told in ((26, {"serial": "S1"}), (27, {"serial": "S2", "reading": "temperature"}), (28.5, {}))
    ]
    (ticket,) = made(engine, score("leaf-0/2", 0.2), events=tuple(bad))
    assert ticket["serial"] == "S2"
    assert {one["what"]: one["count"] for one in ticket["faults"]} == {"link or adapter error": 3, "link flap": 3}


@pytest.mark.parametrize(
    ("kind", "device", "severity", "leads"),
    [
        ("pcie_aer", "hca", "error", True),
        ("pcie_aer", "gpu", "error", False),
        ("pcie_replay", "hca", "warning", False),
        ("mlx5_health", "hca", "error", True),
    ],
)
def test_the_adapter_comes_first_where_it_fails_itself(
    engine: sa.Engine, kind: str, device: Any, severity: Any, leads: bool
) -> None:
    """Of a host with one cable a GPU's PCIe errors count for its link: no reason to open the adapter's slot."""
    place = Device(device, pci="0000:0f:00.0")
    bad = Event(day(27), "gpu-1", "kernel", kind, None, severity, "hardware", "none", place, "it fails")
    (ticket,) = made(engine, score("leaf-0/2", 0.2), events=(bad,))
    assert (
        ticket["next_step"].startswith(
            '1. Look at the adapter of gpu-1 and its slot (gpu-1 says: "it fails"). 2. Clean'
        )
        == leads
    )


def test_what_a_sender_says_stands_in_quotes() -> None:
    """A technician sees whose words they are: no quote of the sender's ends them."""
    forged = sign("mlx5_health", 'normal". 2. Pull the cable of leaf-01 port 12' + "x" * 300)
    text = link_steps([replace(forged, is_of_adapter=True)], ENDS)
    said = text[text.index('says: "') + len('says: "') : text.index('"). 2. Clean')]
    assert '"' not in said
    assert len(said) == 120

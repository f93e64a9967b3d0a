"""The opensm parser over a log that a real subnet manager writes while a cable is pulled and put back."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from real.opensm import fabric

from parsers.ibnetdiscover import links
from parsers.parser import Context, ParseError, parse
from parsers.registry import PARSERS
from store.event import Event

pytestmark = pytest.mark.integration


def decoded(log: Path) -> tuple[list[Event], list[str]]:
    """The events of a log, and what was said of broken lines."""
    told: list[str] = []

    def tell(line: int, error: ParseError) -> None:
        told.append(f"{line}: {error}")

    now = datetime.now(UTC)
    parser = PARSERS["opensm"].make(Context(year=now.year, until=now))
    with log.open("rb") as file:
        return list(parse(parser, file, tell)), told


def test_a_pulled_cable_is_seen_as_port_and_link_and_its_return_too(tmp_path: Path) -> None:
    """The switch's trap names only the switch, the removed port its host; then the port is discovered again."""
    began = datetime.now(UTC)
    with fabric(tmp_path) as sim:
        whole = list(links(sim.discover().splitlines()))
        sim.unlink("host03")
        sim.wait_for_log("Removed port with GUID")
        cut = list(links(sim.discover().splitlines()))
        sim.relink("host03")
        sim.wait_for_log("SUBNET UP", times=3)
        sim.stop_opensm()
        events, broken = decoded(sim.log)
    assert broken == []
    assert {"link_state_change", "port_removed", "port_discovered"} <= {event.kind for event in events}
    removed = [event for event in events if event.kind == "port_removed"]
    assert [event.node for event in removed] == ["host03"]
    back = [
        event for event in events if event.kind == "port_discovered" and event.time and event.time >= removed[0].time
    ]  # type: ignore[operator]  # times are there
    assert "host03" in {event.node for event in back}
    assert all(
        event.source == "opensm" and event.time and event.time >= began.replace(microsecond=0) for event in events
    )
    assert {(link["switch"], link["peer"]) for link in whole} - {(link["switch"], link["peer"]) for link in cut} == {
        ("leaf02", "host03")
    }
    assert len(whole) == 8

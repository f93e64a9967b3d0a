"""opensm's list of links: what is lost between two switches, what is back, and what is told of by others."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.collector import CollectorTurn, SourceError, SourceSettings
from collectors.sources.subnet import SubnetCollector

SETTINGS = SourceSettings(node="manager", interval_s=0.01)
# Four switches in a square, a host on the first: name and port of each end.
SQUARE = [
    (("leaf01", 33), ("spine01", 1)),
    (("leaf01", 34), ("spine02", 1)),
    (("leaf02", 33), ("spine01", 2)),
    (("leaf02", 34), ("spine02", 2)),
    (("leaf01", 1), ("gpu-001 mlx5_0", 1)),
]
T0 = datetime(2026, 5, 4, 12, tzinfo=UTC)
Link = tuple[tuple[str, int], tuple[str, int]]
GUIDS = {name: 0xB83FD20300100000 + 64 * place for place, name in enumerate(("leaf01", "leaf02", "spine01", "spine02"))}


def end(name: str, port: int) -> str:
    """One end as opensm 3.3.23 writes it."""
    guid = GUIDS.get(name, 0xB83FD20300200000)
    kind, ports, own = ("SW", 40, f"MF0;{name}:MQM8700/U1") if name in GUIDS else ("CA", 1, name)
    return (
        f"{{ {kind} Ports:{ports:02X} SystemGUID:{guid:016x} NodeGUID:{guid:016x} PortGUID:{guid:016x} VenID:000000 "
        f"DevID:0000 Rev:000000A1 {{{own}}} LID:0002 PN:{port:02X} }}"
    )


def listed(links: Iterable[Link]) -> str:
    """The list: each link at both its ends."""
    both = [pair for near, far in links for pair in ((near, far), (far, near))]
    return "".join(f"{end(*near)} {end(*far)} PHY=4x LOG=ACT SPD=50\n" for near, far in both)


class Manager:
    """Writes its list at moments a minute apart, and what the source told of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.minute = path, 0
        self.write(listed(SQUARE))
        self.source = SubnetCollector(str(path), SETTINGS)
        self.source.open(None)
        self.look()

    def write(self, text: str) -> None:
        """A sweep's end."""
        self.minute += 1
        self.path.write_text(text)
        os.utime(self.path, (T0.timestamp() + 60 * self.minute,) * 2)

    def look(self) -> list[CollectorTurn]:
        """What is seen, seen again and read."""
        return [self.source.collect(1.0) for _ in range(3)]

    def told(self, links: Iterable[Link]) -> list[tuple[str, str, int | None, object]]:
        """What a further list says: kind, GUID, port and the other end."""
        self.write(listed(links))
        events = [event for turn in self.look() for event in turn.events]
        assert all(event.time == datetime.fromtimestamp(self.path.stat().st_mtime, UTC) for event in events)
        return [(one.kind, str(one.device.uuid), one.device.port, one.attributes["peer"]) for one in events]


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    """One that has listed the whole square."""
    return Manager(tmp_path / "opensm-subnet.lst")


LOST = ("0xb83fd20300100000", 33, "MF0;spine01:MQM8700/U1")


def test_a_link_that_the_list_lacks_is_down_and_up_when_it_is_listed_again(manager: Manager) -> None:
    """Once each, however often the list is written, by a port of a switch and the moment of the list."""
    assert manager.told(SQUARE) == []
    assert manager.told(SQUARE[1:]) == [("link_down", *LOST)]
    assert manager.told(SQUARE[1:]) == []
    assert manager.told(SQUARE) == [("link_up", *LOST)]


def test_a_switch_or_a_host_that_is_gone_is_the_log_s_to_tell_and_a_link_that_it_comes_back_without_is_not(
    manager: Manager,
) -> None:
    """`Removed port` names both; a cable that stays away after the switch is back is named by nobody else."""
    assert manager.told(SQUARE[:4]) == []
    assert manager.told([link for link in SQUARE if link[1][0] != "spine01"]) == []
    assert manager.told(SQUARE[1:]) == [("link_down", *LOST)]


def test_a_port_that_is_cabled_elsewhere_has_lost_no_link(manager: Manager) -> None:
    """Two uplinks were swapped; one that was lost before is up with its new peer."""
    swapped = [(SQUARE[0][0], SQUARE[1][1]), (SQUARE[1][0], SQUARE[0][1]), *SQUARE[2:]]
    assert manager.told(swapped) == []
    (down,) = manager.told(swapped[1:])
    assert down[:3] == ("link_down", *LOST[:2])
    (up,) = manager.told(SQUARE)
    assert up[:3] == ("link_up", *LOST[:2])  # its own port, though its peer is another


def test_a_link_that_is_lost_still_when_its_switch_is_back_is_told_again(manager: Manager) -> None:
    """The log says that the switch is found, and its links pass for well; the list knows better."""
    assert manager.told(SQUARE[1:]) == [("link_down", *LOST)]
    assert manager.told([link for link in SQUARE if link[1][0] != "spine01"]) == []
    assert manager.told(SQUARE[1:]) == [("link_down", *LOST)]
    assert manager.told(SQUARE[1:]) == []
    assert manager.told(SQUARE) == [("link_up", *LOST)]


def test_a_pipe_in_the_list_s_place_keeps_nobody_waiting(manager: Manager) -> None:
    """Nor does a line without an end fill the memory."""
    manager.path.unlink()
    os.mkfifo(manager.path)
    assert [turn.events for turn in manager.look()] == [()] * 3
    manager.path.unlink()
    manager.write("{ SW" + "x" * 9_000_000)
    assert [turn.events for turn in manager.look()] == [()] * 3
    assert manager.told(SQUARE) == []


def test_what_was_told_as_lost_is_known_after_a_restart(manager: Manager) -> None:
    """The list of before is not: what changed in between is not told."""
    manager.write(listed(SQUARE[1:]))
    position = manager.look()[1].position
    manager.source = SubnetCollector(str(manager.path), SETTINGS)
    manager.source.open(position)
    assert [event for turn in manager.look() for event in turn.events] == []
    assert manager.told(SQUARE) == [("link_up", *LOST)]


def test_half_a_list_says_nothing(manager: Manager) -> None:
    """opensm was stopped while it wrote: some links have one line of two."""
    rows = listed(SQUARE).splitlines(keepends=True)
    manager.write("".join(rows[:5]))
    turns = manager.look()
    assert [turn.errors for turn in turns] == [0, 1, 0]
    assert manager.told(SQUARE) == []
    manager.path.unlink()
    assert [turn.events for turn in manager.look()] == [()] * 3


def test_a_host_that_calls_itself_a_switch_s_link_makes_none(manager: Manager) -> None:
    """A description has 64 bytes, and is the host's own."""
    hostile = (("leaf01", 2), ("x} LID:0001 PN:21 } { SW Ports:28 SystemGUID:b83fd20300100000", 1))
    assert manager.told([*SQUARE, hostile]) == []
    assert manager.told(SQUARE) == []


@pytest.mark.parametrize(("mode", "uid"), [(0o666, -1), (0o644, 4711)])
def test_a_list_that_a_user_can_write_names_no_cable(manager: Manager, mode: int, uid: int) -> None:
    """It is refused at the start, and counted once where it came later; the manager's own is read again."""
    if uid > 0 and os.geteuid() != 0:
        pytest.skip("only root gives a file away")
    manager.write(listed(SQUARE[1:]))
    manager.path.chmod(mode)
    os.chown(manager.path, uid, -1)
    turns = manager.look()
    assert [event for turn in turns for event in turn.events] == []
    assert [turn.refused for turn in turns] == [{"writer": 1}, {}, {}]
    with pytest.raises(SourceError, match="let root alone write"):
        SubnetCollector(str(manager.path), SETTINGS).open(None)
    manager.path.unlink()
    assert manager.told(SQUARE[1:]) == [("link_down", *LOST)]


def test_a_list_that_is_not_there_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    """At the first start; later opensm may be away."""
    source = SubnetCollector(str(tmp_path / "none.lst"), SETTINGS)
    with pytest.raises(SourceError, match="dump_files_dir"):
        source.open(None)
    source.open({"lost": []})
    assert source.collect(1.0).events == ()

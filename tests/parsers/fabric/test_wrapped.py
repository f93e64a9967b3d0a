"""The same records behind syslog's prefix, and lines that are none."""

import pytest

from .opensm_log import decode, line

REMOVED = "drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 LID range [17, 17] of node:gpu007 mlx5_0"


@pytest.mark.parametrize("tag", ["OpenSM[2891]", "opensm[1]", "osm[77]", "nvlsm[5]", "OpenSM"])
@pytest.mark.parametrize(
    "prefix", ["Nov 20 22:18:12 ufm-01 ", "2026-11-20T22:18:12+00:00 ufm-01 ", "<30>Nov 20 22:18:12 ufm-01 "]
)
def test_a_record_behind_syslogs_prefix_is_read(prefix: str, tag: str) -> None:
    """With opensm's own header, whose time counts, or without one; the machine is the manager's, not the port's."""
    events = decode(f"{prefix}{tag}: {line(REMOVED)}", f"{prefix}{tag}: Entering MASTER state")
    assert [(e.kind, e.node, e.time and e.time.second) for e in events] == [
        ("port_removed", "gpu007", 11),
        ("sm_state", "ufm-01", 12),
    ]


def test_another_programs_line_that_quotes_opensm_is_none() -> None:
    """The tag is what counts."""
    assert decode(f"Nov 20 22:18:12 ufm-01 logwatch[7]: OpenSM[2891]: {line(REMOVED)}", "OpenSM: hello") == []


def test_a_record_of_several_lines_is_one_line_behind_syslog() -> None:
    """rsyslog writes #012 for a line end."""
    text = (
        "Nov 20 22:18:12 ufm-01 OpenSM[2891]: ERR 0D01: Found duplicated node "
        "GUID.#012Node 0xc0 port 1 is reachable from "
        "remote node 0x40 port 4 and remote node 0x40 port 5.#012Paths are:"
    )
    (event,) = decode(text)
    assert event.attributes["seen_at_1"] == "0x0000000000000040 port 4"


def test_lines_below_a_record_are_bounded() -> None:
    """A dump of a thousand lines is kept to its first dozen."""
    dump = [line("report_duplicated_guid: ERR 0D01: Found duplicated node GUID."), *["\t00 00"] * 1000]
    (event,) = decode(*dump)
    assert len(event.message) <= 400

"""A port for syslog on the loopback: every user of the machine reaches it, and none is the kernel of any node."""

import os
import subprocess
import sys
from collections import Counter

import pytest
from real.patience import patience
from real.programs import wait_for

from collectors.collector import SourceSettings
from collectors.sources.syslog import SyslogCollector
from store.records.event import Event

USER = 54321
LINE = (
    "<2>1 2025-03-01T04:05:06.789000+00:00 {} kernel - - - NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus."
)
# Says a line and ends: at once, or when it is told to.
SAYS = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sender:
    sender.sendall(sys.argv[3].encode() + b"\\n")
    if sys.argv[4] == "stays":
        try:
            sender.recv(1)
        except ConnectionError:
            pass
"""


def heard(source: SyslogCollector, senders: list[tuple[int, str, str]]) -> tuple[list[str | None], Counter[str]]:
    """The nodes of which events came, and what was refused, of senders: whose, of which node, and whether it stays."""
    host = source.spec.split(":", 1)[1].rpartition(":")[0].strip("[]")
    started = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", SAYS, host, str(source.port), LINE.format(node), stays],
            user=user,
            cwd="/",
        )
        for user, node, stays in senders
    ]
    events, refused = list[Event](), Counter[str]()

    def look() -> bool:
        turn = source.collect(0.1)
        events.extend(turn.events)
        refused.update(turn.refused)
        return len(events) + refused["writer"] >= len(senders)

    wait_for("every sender is heard or refused", look)
    source.close()
    for process in started:
        process.wait(patience(20))
    return sorted((event.node for event in events), key=str), refused


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_user_of_the_machine_speaks_for_no_node(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not one that stays, nor one that is gone before anybody looks whose it is; root's daemon is heard."""
    source = SyslogCollector(f"syslog:{host}:0".removeprefix("syslog:"), SourceSettings(node="loghost", hosts="many"))
    source.open(None)
    found = heard(source, [(USER, "gpu-001", "stays"), (USER, "gpu-002", "goes"), (0, "gpu-003", "stays")])
    assert found == (["gpu-003"], Counter(writer=2))
    (told,) = caplog.messages  # not one for each: a user could fill the log
    assert told.endswith("a user's program was refused: say `trust:` where users may send")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_who_lets_users_send_says_so() -> None:
    """`trust: system`, on a machine without users; under `trust: user` nobody's line is the kernel's."""
    source = SyslogCollector("127.0.0.1:0", SourceSettings(node="loghost", hosts="many", trust="system"))
    source.open(None)
    assert heard(source, [(USER, "gpu-001", "stays")]) == (["gpu-001"], Counter())

"""A real journald and a real rsyslog: what users log there under the names of the kernel and of root's daemons."""

import os
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from attacks.forged_lines import FAULT, NODE, SWITCH_FAULT
from real.journald import Journal, journald
from real.patience import patience
from real.programs import need, stop, wait_for

from collectors import trust
from collectors.collector import SourceSettings
from collectors.sources.journal import JournalCollector

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kmsg")]
_NOBODY = 65534
_RSYSLOG = """
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{folder}/log" CreatePath="on")
kern.* action(type="omfile" file="{folder}/kern.log")
"""


def as_user(journal: Journal, *words: str, given: str = "") -> None:
    """Run a program as a user without rights, where that journald listens."""
    enter = ["nsenter", "--target", str(journal.process.pid), "--mount", "--"]
    become = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    subprocess.run([*enter, *become, *words], check=True, timeout=patience(30), cwd="/", input=given, text=True)


def test_what_a_user_logs_is_nobody_elses_word(tmp_path: Path) -> None:
    """`logger -t kernel`, `logger -t nv-fabricmanager`, journald's own protocol with the kernel's facility."""
    logger = need("logger", "bsdutils")
    if not os.access("/dev/kmsg", os.W_OK):
        pytest.skip("/dev/kmsg may not be written here")
    with journald(tmp_path) as journal:
        syslog = ["--socket", "/run/systemd/journal/dev-log", "--priority", "kern.err", "--socket-errors=on"]
        as_user(journal, logger, *syslog, "--tag", "kernel", f"{FAULT} by logger")
        as_user(journal, logger, *syslog, "--tag", "nv-fabricmanager", SWITCH_FAULT)
        forged = "SYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=nv-fabricmanager\n_UID=0\n_TRANSPORT=kernel\n"
        as_user(journal, logger, "--journald", given=f"MESSAGE={SWITCH_FAULT} native\n{forged}")
        marker = uuid.uuid4().hex[:12]  # the ring holds what earlier tests wrote, too
        Path("/dev/kmsg").write_text(f"<3>{FAULT.replace('python', marker)}\n")
        for text in ("by logger", "native", marker):
            journal.wait_for(text)
        collector = JournalCollector(str(journal.folder), SourceSettings(node=NODE))
        collector.open(None)
        found = []
        deadline = time.monotonic() + patience(20)
        while time.monotonic() < deadline and not any(event.attributes.get("process") == marker for event in found):
            found += collector.collect(0.1).events
        found += collector.collect(0.5).events
        collector.close()
    assert [event for event in found if event.kind == "fabricmanager_nvswitch"] == []
    assert not [event for event in found if "by logger" in event.message]
    assert [event.attributes.get("process") for event in found].count(marker) == 1


def test_where_rsyslog_listens_itself_a_user_can_log_as_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So kern.log is nobody's word there, unless an operator says so: its line is really forged here."""
    rsyslogd = need("rsyslogd", "rsyslog")
    folder = tmp_path
    (folder / "rsyslog.conf").write_text(_RSYSLOG.format(folder=folder))
    process = subprocess.Popen([rsyslogd, "-n", "-f", str(folder / "rsyslog.conf"), "-i", str(folder / "pid")])
    try:
        wait_for("rsyslog listens", (folder / "log").is_socket)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(f"<3>kernel: {FAULT}".encode(), str(folder / "log"))
        kern = folder / "kern.log"
        wait_for("the line is in kern.log", lambda: kern.exists() and FAULT in kern.read_text())
        monkeypatch.setattr(trust, "SYSLOG_SOCKET", folder / "log")
        assert trust.trust_of(f"file:{kern}:kernel").trust == "user"
        assert trust.trust_of(f"file:{kern}:kernel", "kernel").trust == "kernel"
        (folder / "link").symlink_to("/run/systemd/journal/dev-log")
        monkeypatch.setattr(trust, "SYSLOG_SOCKET", folder / "link")
        assert trust.trust_of(f"file:{kern}:kernel").trust == "kernel"
    finally:
        stop(process, signal.SIGTERM)

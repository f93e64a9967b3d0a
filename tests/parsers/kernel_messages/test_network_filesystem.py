"""NFS, Lustre, Storage Scale, Ceph, SMB."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.filesystem import NETWORK_FILESYSTEM
from parsers.text.parser import Context, parse

CLIENT = "scratch-OST0001-osc-ffff9a3c"


@pytest.mark.parametrize(
    ("message", "state", "severity", "peer"),
    [
        ("nfs: server 10.0.0.5 not responding, still trying", "stalled", "error", "10.0.0.5"),
        ("nfs: server nas-1.example.org not responding, timed out", "timed_out", "error", "nas-1.example.org"),
        ("nfs: server 10.0.0.5 OK", "recovered", "info", "10.0.0.5"),
        ("lockd: server nas-1 not responding, still trying", "stalled", "error", "nas-1"),
        ("NFS: state manager: check lease failed on NFSv4 server nas-1 with error 13", "timed_out", "error", "nas-1"),
        (f"Lustre: {CLIENT}: Connection to scratch-OST0001 (at 10.0.0.9@o2ib) was lost; in progress operations using this service will wait for recovery to complete", "stalled", "error", "10.0.0.9@o2ib"),
        (f"Lustre: {CLIENT}: Connection restored to scratch-OST0001 (at 10.0.0.9@o2ib)", "recovered", "info", "10.0.0.9@o2ib"),
        (f"Lustre: {CLIENT}: Connection restored to 10.0.1.1@tcp", "recovered", "info", None),
        ("ceph: mds0 hung", "stalled", "error", "0"),
        ("ceph: mds0 caps stale", "stalled", "error", "0"),
        ("ceph: mds0 came back", "recovered", "info", "0"),
        ("libceph: mon1 (1)10.0.0.1:6789 session lost, hunting for new mon", "stalled", "error", "1"),
        ("CIFS: VFS: \\\\nas-2 has not responded in 180 seconds. Reconnecting...", "stalled", "error", "nas-2"),
    ],
)  # fmt: skip
def test_a_stall_and_its_end_name_the_server(message: str, state: str, severity: str, peer: str | None) -> None:
    """One kind for every network filesystem; the end opens no incident."""
    event = NETWORK_FILESYSTEM.decode(message)
    assert event is not None
    assert (event.kind, event.cause, event.severity) == ("fs_stall", "storage", severity)
    assert (event.attributes["state"], event.attributes.get("peer")) == (state, peer)


@pytest.mark.parametrize(
    ("message", "kind", "severity"),
    [
        ("LustreError: 167-0: scratch-MDT0000-mdc-ffff: This client was evicted by scratch-MDT0000; in progress operations using this service will fail.", "fs_evicted", "error"),
        ("LustreError: 11-0: scratch-OST0000-osc-ffff: operation ost_statfs to node 10.0.0.9@o2ib failed: rc = -107", "lustre_error", "warning"),
        ("LustreError: 2213:0:(ldlm_request.c:1189:ldlm_cli_cancel_req()) Got rc -108 from cancel RPC", "lustre_error", "warning"),
        ("LustreError: 2213:0:(ldlm_lock.c:213:ldlm_lock_put()) LBUG", "lustre_error", "fatal"),
        ("LustreError: 2213:0:(ldlm_lock.c:213:ldlm_lock_put()) ASSERTION( atomic_read(&lock->l_refc) > 0 ) failed", "lustre_error", "fatal"),
        ("LNetError: 2212:0:(o2iblnd_cb.c:3370:kiblnd_check_conns()) Timed out RDMA with 10.0.0.9@o2ib (5): c: 7", "lustre_error", "warning"),
        ("LNetError: 2212:0:(o2iblnd_cb.c:3370:kiblnd_check_txs_locked()) Timed out tx: active_txs, 1 seconds", "lustre_timeout", "warning"),
        ("LNet: 2212:0:(o2iblnd_cb.c:3370:kiblnd_check_conns()) Timed out tx for 10.0.0.9@o2ib: 5 seconds", "lustre_timeout", "warning"),
        ("Lustre: 2211:0:(client.c:2340:ptlrpc_expire_one_request()) @@@ Request sent has failed due to network error: [sent 1/real 2]", "lustre_timeout", "warning"),
        ("LustreError: 11-0: scratch-OST0000-osc-ffff: Skipped 17 previous similar messages", None, None),
        ("LustreError: 2213:0:(file.c:1:f()) Skipped 1 previous similar message", None, None),
        ("Lustre: Mounted scratch-client", None, None),
        ("Lustre: DEBUG MARKER: LustreError: x", None, None),
        ("FS-Cache: Netfs 'nfs' registered for caching", None, None),
        ("dhcp: server 10.0.0.5 OK", None, None),
    ],
)  # fmt: skip
def test_lustres_own_errors(message: str, kind: str | None, severity: str | None) -> None:
    """Its bugs are fatal; its repeats are none."""
    event = NETWORK_FILESYSTEM.decode(message)
    assert (event and event.kind, event and event.severity) == (kind, severity)


@pytest.mark.parametrize(
    ("code", "severity", "action"),
    [("MMFS_DISKFAIL", "error", "drain_node"), ("MMFS_LONGDISKIO", "error", "watch"), ("MMFS_QUOTA", None, None)],
)
def test_storage_scale_logs_under_a_tag_of_its_own(code: str, severity: str | None, action: str | None) -> None:
    """Its daemon writes to syslog, not the kernel; another program that quotes it is not heard."""
    line = f"Nov 20 22:31:54 gpu-017 {{}}: Error={code}, ID=0x9C6C05FA, Tag=8455000:   volume scratch"
    events = list(parse(KernelParser(Context(year=2026)), [line.format("mmfs[2311]"), line.format("nhc[1]")]))
    assert [(event.kind, event.severity, event.action, event.line) for event in events] == (
        [("gpfs_error", severity, action, 1)] if severity else []
    )


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("ceph: mds0 session blocklisted", "fs_evicted"),
        ("ceph: mds0 reconnect denied", "fs_evicted"),
        ("ceph: mds0 rejected session", "fs_evicted"),
        ("ceph: mds0 reconnect start", None),
        ("ceph: mds0 closed our session", None),
        ("LustreError: (obd_config.c:845:class_setup()) setup MGCfd17:2016:1000@tcp failed (-22)", "lustre_error"),
        ("Lustre: (client.c:2116:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent 1]", "lustre_timeout"),
    ],
)  # fmt: skip
def test_clients_that_are_thrown_out_and_lustre_without_a_pid(message: str, kind: str | None) -> None:
    """A session that is only closed is made anew."""
    event = NETWORK_FILESYSTEM.decode(message)
    assert (event and event.kind) == kind

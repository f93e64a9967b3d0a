"""The rows of the tables."""

from datetime import UTC, datetime, timedelta

from dashboard.answers.cluster import AuditEntry, Device, Event, Incident, Interruption, Node, Outage
from dashboard.answers.hints import Hint
from dashboard.panels import frames

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
GPU = Device("gpu", pci="0000:0f:00.0", index=3)
XID = Incident(
    "i1",
    NOW - timedelta(minutes=4),
    NOW,
    "xid",
    "gpu-017",
    79,
    "fatal",
    "hardware",
    "reboot_node",
    GPU,
    "Off the bus.",
    2,
    meaning="Driver can no longer reach the GPU over PCIe",
)


def test_an_incident_says_when_where_what_and_what_to_do() -> None:
    """In words."""
    assert frames.incident_rows([XID], NOW) == [
        {
            "when": "4 min ago · 03:08:00",
            "severity": ["fatal"],
            "node": "gpu-017",
            "device": "GPU 3 (0000:0f:00.0)",
            "what": "Xid 79, driver can no longer reach the GPU over PCIe: Off the bus.",
            "events": 2,
            "do": "reboot the node",
        }
    ]


def test_a_brief_incident_leaves_out_addresses_and_counts() -> None:
    """For half a page."""
    row = frames.incident_rows([XID], NOW, brief=True)[0]
    assert (row["device"], row["what"]) == ("GPU 3", "Xid 79, driver can no longer reach the GPU over PCIe")
    assert "events" not in row


def test_what_is_not_known_is_a_dash() -> None:
    """An event of the fabric names no node, one without a time no time."""
    row = frames.event_rows([Event(None, "link_down", "opensm", meaning="A link is down")], NOW)[0]
    assert (row["when"], row["node"], row["device"], row["what"]) == ("–", "–", "–", "a link is down")


def test_outages_come_newest_first_and_an_open_one_says_so() -> None:
    """Planned, unplanned, not known."""
    rows = frames.outage_rows(
        [
            Outage(NOW - timedelta(days=3), end=NOW - timedelta(days=2), reason="Not responding", planned=False),
            Outage(NOW - timedelta(hours=1), state="DRAIN", planned=True, cause="host"),
            Outage(NOW - timedelta(days=9), end=NOW - timedelta(days=9)),
        ],
        NOW,
    )
    assert [row["lasted"] for row in rows] == ["still out", "24 h", "0 s"]
    assert [row["planned"] for row in rows] == ["planned", "unplanned", "–"]
    assert [row["why"] for row in rows] == ["DRAIN", "Not responding", "–"]


def test_an_interruption_names_its_culprit_or_says_that_none_was_found() -> None:
    """GPU-hours only where the GPUs are known."""
    found = Interruption(NOW - timedelta(hours=1), 3600.0, "hardware", Device("gpu", index=3, node="gpu-017"))
    lost = Interruption(NOW - timedelta(hours=2), 1800.0, "unknown", None)
    rows = frames.interruption_rows([lost, found], NOW, 16)
    assert [row["culprit"] for row in rows] == ["gpu-017 · GPU 3", "not found"]
    assert [row["gpu_hours"] for row in rows] == [16.0, 8.0]
    assert frames.interruption_rows([lost], NOW, None)[0]["gpu_hours"] is None


def test_the_ledger_as_a_table_explains_each_bucket() -> None:
    """Only those that hold time."""
    rows = frames.bucket_rows({"productive": 900.0, "waiting": 100.0, "unknown": 0.0}, 1000.0, None)
    assert [(row["bucket"], row["share"]) for row in rows] == [
        ("Useful training", "90.00 %"),
        ("Waiting for nodes", "10.00 %"),
    ]
    assert all(row["meaning"] for row in rows)


def test_an_audit_entry_names_the_hint_by_what_it_asks() -> None:
    """An id says nothing to a person."""
    hint = Hint("h1", "gpu-017", "cordon", "proposed")
    entries = [
        AuditEntry(
            NOW, "policy", "proposed", "h1", {"node": "gpu-017", "reason": "foreshock: Xid 79", "change": "made"}
        ),
        AuditEntry(NOW, "alice", "withdrawn", "h0", {"node": "gpu-002", "hint": "watch", "was": "shadow", "old": None}),
        AuditEntry(NOW, "alice", "prune", "events", "90 days"),
        AuditEntry(NOW, "alice", "prune", "events"),
    ]
    rows = frames.audit_rows(entries, [hint], NOW)
    assert [row["hint"] for row in rows] == ["cordon gpu-017", "watch gpu-002", "events", "events"]
    assert [row["why"] for row in rows] == ["Xid 79; change: made", "was: shadow", "90 days", ""]
    assert rows[0]["became"] == "proposed"


def test_hints_as_rows() -> None:
    """Who asked what of which node."""
    assert frames.hint_rows([Hint("h1", "gpu-017", "cordon", "expired", "risk 31 %")], NOW) == [
        {"when": "–", "node": "gpu-017", "asked": "cordon", "state": "expired", "why": "risk 31 %", "by": "–"}
    ]


def test_the_worst_nodes_come_first() -> None:
    """By state, then by risk, then by name; a state of a newer server is not taken for well."""
    nodes = [
        Node("d", "ok", score_24h=0.5),
        Node("c", "at_risk", score_24h=0.1),
        Node("b", "at_risk", score_24h=0.3),
        Node("a", "faulty"),
        Node("f", "ok"),
        Node("e", "ok"),
        Node("x", "dreaming"),
    ]
    assert [node.node for node in frames.worst_first(nodes)] == ["a", "b", "c", "x", "d", "e", "f"]

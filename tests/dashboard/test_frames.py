"""The rows of the tables."""

from datetime import UTC, datetime, timedelta

import pyarrow

from dashboard.client import worst_first
from dashboard.panels import frames, hint_card
from dashboard.text import verdicts as sayings
from wire.events import AuditJson, DeviceJson, EventJson, IncidentJson
from wire.goodput import CulpritJson, InterruptionJson
from wire.hints import HintJson
from wire.money.price import parse_price
from wire.nodes import NodeJson, OutageJson
from wire.verdicts import VerdictJson

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
GPU = DeviceJson(type="gpu", pci="0000:0f:00.0", index=3)
XID = IncidentJson(
    id="i1",
    start=NOW - timedelta(minutes=4),
    end=NOW,
    kind="xid",
    node="gpu-017",
    code=79,
    severity="fatal",
    cause="hardware",
    action="reboot_node",
    device=GPU,
    message="Off the bus.",
    count=2,
    meaning="Driver can no longer reach the GPU over PCIe",
)


def test_a_table_goes_to_the_browser_as_arrow() -> None:
    """Without a DataFrame on the way; what Arrow does not take is left to Streamlit, which makes a text of it."""
    made = frames.table([{"What": "Off the bus.", "Severity": ["fatal"], "Events": 2}, {"What": None}])
    assert isinstance(made, pyarrow.Table)
    assert made.to_pylist()[1] == {"What": None, "Severity": None, "Events": None}
    for strange in ([{"Events": 10**30}], [{"Events": 1}, {"Events": "two"}]):
        assert frames.table(strange) is strange


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
            "open": "incidents?incident=i1",
        }
    ]


def test_a_brief_incident_leaves_out_addresses_and_counts() -> None:
    """For half a page."""
    row = frames.incident_rows([XID], NOW, brief=True)[0]
    assert (row["device"], row["what"]) == ("GPU 3", "Xid 79, driver can no longer reach the GPU over PCIe")
    assert "events" not in row


def test_what_is_not_known_is_a_dash() -> None:
    """An event of the fabric names no node, one without a time no time."""
    row = frames.event_rows([EventJson(time=None, kind="link_down", source="opensm", meaning="A link is down")], NOW)[0]
    assert (row["when"], row["node"], row["device"], row["what"]) == ("–", "–", "–", "a link is down")


def test_outages_come_newest_first_and_an_open_one_says_so() -> None:
    """Planned, unplanned, not known."""
    rows = frames.outage_rows(
        [
            OutageJson(
                start=NOW - timedelta(days=3), end=NOW - timedelta(days=2), reason="Not responding", planned=False
            ),
            OutageJson(start=NOW - timedelta(hours=1), state="DRAIN", planned=True, cause="host"),
            OutageJson(start=NOW - timedelta(days=9), end=NOW - timedelta(days=9)),
        ],
        NOW,
    )
    assert [row["lasted"] for row in rows] == ["still out", "24 h", "0 s"]
    assert [row["planned"] for row in rows] == ["planned", "unplanned", "–"]
    assert [row["why"] for row in rows] == ["DRAIN", "Not responding", "–"]


def test_an_interruption_names_its_culprit_or_says_that_none_was_found() -> None:
    """GPU-hours only where the GPUs are known."""
    found = InterruptionJson(
        time=NOW - timedelta(hours=1),
        lost_s=3600.0,
        cause="hardware",
        culprit=CulpritJson(type="gpu", index=3, node="gpu-017"),
    )
    lost = InterruptionJson(time=NOW - timedelta(hours=2), lost_s=1800.0, cause="unknown", culprit=None)
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
    hint = HintJson(id="h1", node="gpu-017", action="cordon", state="proposed")
    entries = [
        AuditJson(
            time=NOW,
            actor="policy",
            action="proposed",
            subject="h1",
            detail={"node": "gpu-017", "reason": "foreshock: Xid 79", "change": "made"},
        ),
        AuditJson(
            time=NOW,
            actor="alice",
            action="withdrawn",
            subject="h0",
            detail={"node": "gpu-002", "hint": "watch", "was": "shadow", "old": None},
        ),
        AuditJson(time=NOW, actor="alice", action="prune", subject="events", detail="90 days"),
        AuditJson(time=NOW, actor="alice", action="prune", subject="events"),
    ]
    rows = frames.audit_rows(entries, [hint], NOW)
    assert [row["hint"] for row in rows] == ["cordon gpu-017", "watch gpu-002", "events", "events"]
    assert [row["why"] for row in rows] == ["Xid 79; change: made", "was: shadow", "90 days", ""]
    assert rows[0]["became"] == "proposed"


def test_what_the_audit_holds_is_said_without_the_signs_of_a_program() -> None:
    """The evidence of a hint stands in words on its card; other structures are lists of words."""
    detail = {
        "reason": "foreshock: risk 16 %",
        "evidence": {"score": 0.161, "reasons": ["7 row remappings"]},
        "sizes": {"node_gpus": 8, "job_gpus": None},
        "nodes": ["a", "b"],
    }
    (row,) = frames.audit_rows(
        [AuditJson(time=NOW, actor="policy", action="shadow", subject="h", detail=detail)], [], NOW
    )
    assert row["why"] == "risk 16 %; sizes: node gpus 8; nodes: a, b"


def test_a_brief_table_of_incidents_has_what_to_do_before_the_long_text() -> None:
    """What stands last is out of sight where the table is narrow."""
    incident = IncidentJson(id="i", start=NOW, end=NOW, kind="xid", action="reboot_node", message="off the bus")
    (row,) = frames.incident_rows([incident], NOW, brief=True)
    assert list(row) == ["open", "when", "severity", "node", "device", "do", "what"]


def test_hints_as_rows() -> None:
    """Who asked what of which node."""
    assert frames.hint_rows(
        [HintJson(id="h1", node="gpu-017", action="cordon", state="expired", reason="risk 31 %")], NOW
    ) == [{"when": "–", "node": "gpu-017", "asked": "cordon", "state": "expired", "why": "risk 31 %", "by": "–"}]


def test_the_worst_nodes_come_first() -> None:
    """By state, then by risk, then by name; a state of a newer server is not taken for well."""
    nodes = [
        NodeJson(node="d", state="ok", score_24h=0.5),
        NodeJson(node="c", state="at_risk", score_24h=0.1),
        NodeJson(node="b", state="at_risk", score_24h=0.3),
        NodeJson(node="a", state="faulty"),
        NodeJson(node="f", state="ok"),
        NodeJson(node="e", state="ok"),
        NodeJson(node="x", state="dreaming"),
    ]
    assert [node.node for node in worst_first(nodes)] == ["a", "b", "c", "x", "d", "e", "f"]


def test_rows_tell_the_money_of_their_hours_where_a_price_is_set() -> None:
    """Of the hours as they are, not as they are shown; without a price there is no such column."""
    price = parse_price("2.50 EUR")
    assert frames.bucket_rows({"waiting": 900.0}, 900.0, 16, price)[0]["money"] == "EUR 10.00"
    assert frames.bucket_rows({"waiting": 900.0}, 900.0, None, price)[0]["money"] == ""
    assert "money" not in frames.bucket_rows({"waiting": 900.0}, 900.0, 16)[0]
    stop = InterruptionJson(time=NOW, lost_s=3600.0)
    assert frames.interruption_rows([stop], NOW, 16, price)[0]["money"] == "EUR 40.00"
    cost = {"held_gpu_h": 192.0}
    assert hint_card.costs(cost, None, price) == "up to 192 GPU-hours of this node until it expires (EUR 480.00)"
    verdict = VerdictJson(rank=1, probability=0.9, cause_class="gpu", name="n", since=NOW, jobs=["llm"],
                          gpu_hours_at_stake=40.0, money_at_stake=price.of(40.0))  # fmt: skip
    assert sayings.stake(verdict) == "40 (EUR 100.00)"
    assert "40 GPU-hours at stake (EUR 100.00)" in " ".join(sayings.headline(verdict, NOW)).replace("\\", "")

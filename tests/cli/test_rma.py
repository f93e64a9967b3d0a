"""`foreshock rma NODE`: a pack for a vendor that anybody can check, and the audit's word that it was made."""

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from real.programs import need

from cli.main import foreshock
from store.database.audit_chain import AuditEntry, append_audit, verify_chain
from store.database.connections import writing
from store.events.append import append_events, append_outages
from store.events.node_evidence import node_evidence
from store.records.event import Device, Event, with_id
from store.records.outage import Outage
from store.tables import hint_tables, schema, topology_tables, verdict_tables

NOW = datetime.now(UTC)
NODE, OTHER = "gpu-017", "gpu-0171"
GPU = Device("gpu", pci="0000:0f:00.0", index=3, uuid="GPU-a")


def event(hours_ago: float, node: str = NODE, **fields: object) -> Event:
    """A fault of a GPU."""
    time = NOW - timedelta(hours=hours_ago)
    made = Event(
        time, node, "kernel", "xid", code=79, severity="error", device=GPU, message="GPU has fallen off the bus."
    )
    return with_id(replace(made, **fields))  # type: ignore[arg-type]  # a test's own fields


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """A node with faults of two GPUs and an old one, a line of a run, an outage, a check and a test; a neighbour."""
    other_gpu = Device("gpu", index=4)
    said = [
        event(3),
        event(2, device=other_gpu, message="=cmd|' /C calc'!A0"),
        event(24 * 200),
        event(1, source="training", kind="iteration", attributes={"run": "secret-run"}),
        event(1, source="slurm", kind="job", attributes={"user": "ann-k"}),
        event(3, node=OTHER, message="the neighbour's"),
    ]
    with writing(engine).begin() as connection:
        append_events(connection, said, NOW)
        append_outages(
            connection,
            [
                Outage(
                    NODE,
                    NOW - timedelta(hours=2),
                    None,
                    "DOWN",
                    "Xid 79, ann-k: tickets.example/4711",
                    "ann-k",
                    False,
                    "hardware",
                )
            ],
            NOW,
        )
        names = {"class": "gpu", "device": f"{NODE}/gpu:3", "kind": "serial", "name": "1650523000011", "since": NOW}
        connection.execute(
            topology_tables.device_names.insert(), [names, {**names, "device": f"{OTHER}/gpu:3", "name": "9"}]
        )
        case = {"source": "kernel", "name": "xid 7", "node": NODE, "said": NOW - timedelta(hours=3), "last": NOW}
        connection.execute(hint_tables.check_cases.insert(), [case])
        test = {"hint": "h", "node": NODE, "command": "dcgmi", "started": NOW, "passed": False, "output": "12 GB/s"}
        connection.execute(hint_tables.validations.insert(), [test])
        append_audit(connection, [AuditEntry(NOW, "ann", "stop", "switch", {})])
    engine.dispose()
    return str(engine.url)


def run(url: str, *words: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(foreshock, ["rma", NODE, "--db", url, *words])


def unpacked(url: str, folder: Path, *words: str) -> Path:
    """The folder of a pack."""
    done = run(url, "--out", str(folder / "a.zip"), *words)
    assert done.exit_code == 0, done.output
    with zipfile.ZipFile(folder / "a.zip") as pack:
        pack.extractall(folder / "pack")
    return folder / "pack"


def check(pack: Path, *words: str) -> tuple[int, list[str]]:
    """What the pack's own script says, alone on a Python without our packages."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", pack / "verify.py", *words], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_the_pack_holds_what_a_vendor_asks_and_nothing_of_others(url: str, tmp_path: Path) -> None:
    """Serial numbers, faults in order of time; no run, no user, no neighbour; for its owner alone."""
    pack = unpacked(url, tmp_path)
    assert (tmp_path / "a.zip").stat().st_mode & 0o777 == 0o600
    told = json.loads((pack / "node.json").read_text())
    assert [(name["device"], name["name"]) for name in told["devices"]] == [(f"{NODE}/gpu:3", "1650523000011")]
    manifest = json.loads((pack / "manifest.json").read_text())
    assert manifest["records"] == {"events": 2, "incidents": 0, "verdicts": 0, "outages": 1, "checks": 1, "tests": 1}
    lines = (pack / "timeline.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == ["check", "xid 79", "outage", "xid 79", "test"]
    assert not [line for line in lines if ",=cmd" in line], "a spreadsheet runs no formula"
    whole = "".join(path.read_text() for path in pack.iterdir() if path.name != "verify.py")
    assert not [word for word in ("secret-run", "ann-k", "neighbour", OTHER) if word in whole]


def test_of_one_device_the_others_stay_at_home(url: str, tmp_path: Path) -> None:
    """By index, address or UUID; what is of the whole node stays."""
    for number, name in enumerate(("gpu:3", "0000:0F:00.0", "GPU-A")):
        (tmp_path / str(number)).mkdir()
        pack = unpacked(url, tmp_path / str(number), "--device", name)
        records = json.loads((pack / "manifest.json").read_text())["records"]
        assert (records["events"], records["outages"]) == (1, 1)


@pytest.fixture
def talkative(url: str, engine: sa.Engine) -> str:
    """The same node, where people, programs and another part have said much."""
    oom: dict[str, Any] = {"source": "kernel", "kind": "oom_kill", "code": None, "device": Device()}
    said = [
        event(1, **oom, cause="host", message="Out of memory: Killed process 77 (ann-oom)"),
        event(1, **oom, cause="application", message="Killed ann-oom", attributes={"process": "ann-oom"}),
        event(1, source="training", kind="training_error", message="KeyError: ann-text", cause="hardware"),
        event(1, source="hook", kind="training_error", message="ann-text"),
        event(1, source="kubernetes", kind="node_tainted", message="taint ann-text", cause="hardware"),
        event(1, source="ann-source", message="ann-text", cause="hardware"),
        event(1, attributes={"run": "ann-run"}, message="ann-text"),
        event(1, kind="quoted_xid", message="ann-text"),
        event(
            2.5, code=31, cause="application", message="pid=7, name=ann-proc, Ch 8", attributes={"process": "ann-proc"}
        ),
        event(2.5, code=48, device=Device("gpu", index=4, uuid="GPU-other"), message="OTHER"),
    ]
    wrong = {"id": "i", "node": NODE, "start": NOW, "end": NOW, "kind": "xid", "severity": "error", "action": "none"}
    wrong |= {"cause": "hardware", "device": {"type": "node"}, "count": 1, "kinds": ["xid"], "source": "kernel"}
    incidents = [
        {**wrong, "message": "for process ann-proc pid 3"},
        {**wrong, "id": "j", "source": "training", "message": "KeyError: ann-text"},
        {**wrong, "id": "k", "cause": "application", "kind": "oom_kill", "message": "ann-oom"},
    ]
    names = {"class": "gpu", "device": f"{NODE}/gpu:4", "since": NOW}
    more = [{**names, "kind": "serial", "name": "OTHER"}, {**names, "kind": "rank", "name": "ann-rank"}]
    verdict = {"id": "v", "node": NODE, "state": "closed", "revision": 1, "probability": 0.9, "document": "{}"}
    verdict |= dict.fromkeys(("since", "opened", "changed", "ended"), NOW)
    verdicts = [
        {**verdict, "class": "gpu", "name": f"{NODE}/gpu3", "why": "closed by ann-k"},
        {**verdict, "id": "w", "class": "gpu", "name": f"{NODE}/gpu4", "why": None},
        {**verdict, "id": "x", "class": "node", "name": NODE, "why": None},
        {**verdict, "id": "y", "class": "application", "name": "ann-run", "why": None},
    ]
    case = {"source": "kernel", "node": NODE, "said": NOW - timedelta(hours=3), "last": NOW}
    cases = [
        {**case, "name": "xid 79"},
        {**case, "name": "xid 48"},
        {**case, "source": "kubernetes", "name": "ann-check"},
    ]
    with writing(engine).begin() as connection:
        append_events(connection, said, NOW)
        connection.execute(schema.incidents.insert(), incidents)
        connection.execute(topology_tables.device_names.insert(), more)
        connection.execute(verdict_tables.verdicts.insert(), verdicts)
        connection.execute(hint_tables.check_cases.insert(), cases)
    engine.dispose()
    return url


def test_what_people_and_programs_wrote_stays_at_home(talkative: str, tmp_path: Path) -> None:
    """Reasons and their links, exceptions, names of processes, of runs and ranks: nowhere in the pack."""
    pack = unpacked(talkative, tmp_path)
    whole = "".join(path.read_text() for path in pack.iterdir())
    assert [word for word in ("ann-", "tickets.example", "KeyError") if word in whole] == []
    told = json.loads((pack / "outages.jsonl").read_text())
    assert (told["state"], told["planned"], told["cause"]) == ("DOWN", False, "hardware")
    assert "pid=7, name=-, Ch 8" in whole
    assert "OTHER" in whole
    records = json.loads((pack / "manifest.json").read_text())["records"]
    assert (records["events"], records["incidents"], records["verdicts"], records["checks"]) == (4, 1, 3, 3)


def test_of_one_device_no_other_one_is_named(talkative: str, tmp_path: Path) -> None:
    """Neither its serial number nor its verdicts and checks; those of the whole node stay."""
    pack = unpacked(talkative, tmp_path, "--device", "GPU-A")
    whole = "".join(path.read_text() for path in pack.iterdir())
    assert [word for word in ("OTHER", "gpu:4", "gpu4", "GPU-other", "xid 48") if word in whole] == []
    assert [name["name"] for name in json.loads((pack / "node.json").read_text())["devices"]] == ["1650523000011"]
    verdicts = [json.loads(line)["name"] for line in (pack / "verdicts.jsonl").read_text().splitlines()]
    assert verdicts == [f"{NODE}/gpu3", NODE]
    assert [json.loads(line)["name"] for line in (pack / "checks.jsonl").read_text().splitlines()] == ["xid 79"]


def test_the_script_checks_itself(url: str, tmp_path: Path) -> None:
    """As far as a script can: the manifest names it."""
    pack = unpacked(url, tmp_path)
    with (pack / "verify.py").open("a") as script:
        script.write("# more\n")
    code, (said,) = check(pack)
    assert (code, "verify.py" in said, "it was changed" in said) == (1, True, True)


def test_anybody_can_check_a_pack(url: str, tmp_path: Path) -> None:
    """By the files, the signature and the site's audit; each change is named."""
    openssl = need("openssl", "openssl")
    for words in (
        ["genpkey", "-algorithm", "ed25519", "-out", "key"],
        ["pkey", "-in", "key", "-pubout", "-out", "pub"],
    ):
        subprocess.run([openssl, *words], cwd=tmp_path, check=True, capture_output=True)
    pack = unpacked(url, tmp_path, "--key", str(tmp_path / "key"))
    audit = tmp_path / "audit.jsonl"
    assert CliRunner().invoke(foreshock, ["audit", "export", "--db", url, "--out", str(audit)]).exit_code == 0
    known = ("--key", str(tmp_path / "pub"), "--audit", str(audit))
    assert check(pack, *known) == (0, ["whole"])
    (pack / "site.pem").write_bytes((tmp_path / "pub").read_bytes())
    (pack / "audit.jsonl").write_bytes(audit.read_bytes())
    assert check(pack, "--key", str(pack / "site.pem"), "--audit", str(pack / "audit.jsonl")) == (0, ["whole"])
    (pack / "audit.jsonl").unlink()
    assert check(pack) == (1, ["'site.pem': the manifest does not name it"])
    (pack / "site.pem").unlink()
    script = (pack / "verify.py").read_text()
    assert len(script.splitlines()) <= 50
    (pack / "events.jsonl").write_text("")
    (pack / "more").write_text("")
    (pack / "node.json").unlink()
    more = ["'more': the manifest does not name it", "'node.json': it is missing", "'events.jsonl': it was changed"]
    assert check(pack) == (1, more)
    manifest = (pack / "manifest.json").read_text()
    (pack / "manifest.json").write_text(manifest.replace(NODE, "gpu-018"))
    found = check(pack, *known)[1][-2:]
    assert "has not signed it" in found[0]
    assert found[1] == "manifest.json: the site's audit does not know it"


def test_the_audit_says_who_packed_what(url: str, engine: sa.Engine, tmp_path: Path) -> None:
    """In its chain, with the manifest's hash; the manifest has the head of before."""
    done = run(url, "--out", str(tmp_path / "a.zip"), "--json")
    told = json.loads(done.stdout)
    with engine.connect() as connection:
        checked = verify_chain(connection)
        action, subject, detail = connection.execute(
            sa.text("SELECT action, subject, detail FROM audit ORDER BY seq DESC LIMIT 1")
        ).one()
    assert (checked.rows, checked.broken, action, subject) == (2, None, "rma", NODE)
    assert json.loads(detail)["manifest"] == told["manifest"]
    with zipfile.ZipFile(tmp_path / "a.zip") as pack:
        assert json.loads(pack.read("manifest.json"))["audit"]["position"] == 1


def test_what_cannot_be_is_said(url: str, tmp_path: Path) -> None:
    """A node that nobody knows, a key that is none, a folder that is not there."""
    done = CliRunner().invoke(foreshock, ["rma", "gpu-999", "--db", url])
    assert (done.exit_code, "no node 'gpu-999' is known" in done.output) == (2, True)
    assert "foreshock health" not in done.output  # which lists no nodes
    (tmp_path / "key").write_text("none")
    assert "openssl genpkey" in run(url, "--key", str(tmp_path / "key")).output
    assert "cannot read" in run(url, "--key", str(tmp_path / "away")).output
    assert "cannot write" in run(url, "--out", str(tmp_path / "away/a.zip")).output


def test_the_newest_rows_stay_where_there_are_too_many(any_engine: sa.Engine) -> None:
    """And the pack says so; on either database."""
    with writing(any_engine).begin() as connection:
        append_events(connection, [event(hours) for hours in (5, 4, 3)], NOW)
    with any_engine.connect() as connection:
        found = node_evidence(connection, NODE, NOW - timedelta(days=1), NOW, most=2)
    assert found is not None
    assert (len(found.rows["events"]), found.cut) == (2, ["events"])
    assert found.rows["events"][0]["time"] < found.rows["events"][1]["time"]

"""A node's evidence as one ZIP for a vendor's ticket: records, a timeline to read, and a manifest that is checked.

manifest.json    the SHA-256 of each other file, of which node and time, and the head of the site's audit before it
manifest.sig     its signature (Ed25519), where a key was given
node.json        the node, and what its parts are called: serial numbers, UUIDs, PCI addresses
timeline.csv     everything in order of time, a line each
events.jsonl ... the records, a JSON object a line
verify.py        the check of all this, with Python's own library alone
"""

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

import orjson

from store.database.audit_chain import AuditHead
from store.events.node_evidence import NodeEvidence
from store.records.event import format_time
from store.visible_text import csv_text

FORMAT = 1
Signer = Callable[[bytes], bytes]
_COLUMNS = ("time", "what", "severity", "device", "text")
# A record's moment, severity and words, by its kind.
_MOMENT = {
    "events": "time",
    "incidents": "start",
    "verdicts": "since",
    "outages": "start",
    "checks": "said",
    "tests": "started",
}


@dataclass(frozen=True, slots=True)
class EvidencePack:
    """The bytes of the ZIP, and the SHA-256 of its manifest, by which the audit knows it."""

    data: bytes
    manifest: str


def evidence_pack(
    evidence: NodeEvidence, about: dict[str, Any], made: datetime, head: AuditHead, sign: Signer | None
) -> EvidencePack:
    """The pack. `about` is what the manifest says besides: whose, since when, until when, of which device."""
    files = {
        "node.json": orjson.dumps({"node": evidence.node, "devices": evidence.devices}, option=orjson.OPT_INDENT_2),
        "timeline.csv": csv_text([_COLUMNS, *_timeline(evidence)]).encode(),
    }
    for kind, rows in evidence.rows.items():
        files[f"{kind}.jsonl"] = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    files["verify.py"] = resources.files("api.evidence").joinpath("verify.py").read_bytes()
    told = {
        "format": FORMAT,
        **about,
        "made": format_time(made),
        "records": {kind: len(rows) for kind, rows in evidence.rows.items()},
        "older_left_out": evidence.cut,
        "audit": {"position": head.position, "hash": head.hash},
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    manifest = orjson.dumps(told, option=orjson.OPT_INDENT_2)
    whole = {"manifest.json": manifest, **files}
    if sign is not None:
        whole["manifest.sig"] = sign(manifest)
    return EvidencePack(_zipped(whole, made), hashlib.sha256(manifest).hexdigest())


def _zipped(files: dict[str, bytes], made: datetime) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in files.items():
            pack.writestr(zipfile.ZipInfo(name, made.timetuple()[:6]), data, zipfile.ZIP_DEFLATED)
    return found.getvalue()


def _timeline(evidence: NodeEvidence) -> list[tuple[str, ...]]:
    return sorted(line for kind, rows in evidence.rows.items() for line in _lines(kind, rows))


def _lines(kind: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        what = {"events": row.get("kind"), "incidents": f"incident {row.get('kind')}"}.get(kind, kind.rstrip("s"))
        what = f"{what} {row['code']}" if row.get("code") is not None else str(what)
        yield (
            str(row[_MOMENT[kind]]),
            what,
            str(row.get("severity") or ""),
            _device(row.get("device")),
            _words(kind, row),
        )


def _words(kind: str, row: dict[str, Any]) -> str:
    if kind == "outages":
        planned = "planned" if row["planned"] else "unplanned"
        return f"{row['state']} until {row['end'] or 'now'}: {planned}, {row['cause']}"
    if kind == "verdicts":
        return f"{row['class']} {row['name']}, {row['probability']:.0%}, {row['state']}"
    if kind == "checks":
        return f"{row['source']} {row['name']}: {row['outcome'] or 'too early to tell'}"
    if kind == "tests":
        return f"{'passed' if row['passed'] else 'failed'}: {row['output']}"
    return str(row["message"])


def _device(told: Any) -> str:
    if not isinstance(told, dict) or told.get("type") in (None, "node"):
        return ""
    parts = (
        f"{told['type']}:{told['index']}" if told.get("index") is not None else told["type"],
        told.get("pci"),
        told.get("uuid"),
    )
    return " ".join(str(part) for part in parts if part)

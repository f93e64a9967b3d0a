"""A hint in words for people: a title, and lines of a name and a text. Each format escapes them in its own way."""

from collections.abc import Mapping
from typing import Any

_DONE = {"withdrawn": "withdrawn", "expired": "lapsed", "released": "the node is well"}


def title(data: Mapping[str, Any]) -> str:
    """One line: `cordon gpu-017`, `approve? cordon gpu-017`, `released gpu-017`."""
    node = str(data["node"])
    if data["action"] == "release":
        return f"over: {node} ({_DONE.get(str(data.get('state')), 'ended')})"
    if data.get("state") == "proposed":
        return f"approve? {data.get('asks', data['action'])} {node}"
    shadow = "shadow: " if data.get("mode") == "shadow" else ""
    return f"{shadow}{data['action']} {node}"


def lines(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What there is to know: names and texts; a thing that is not known has no line."""
    evidence = data.get("evidence") or {}
    score = evidence.get("score")
    found = [
        ("reason", data.get("reason")),
        ("job", data.get("job")),
        ("risk", f"{score:.0%}" if isinstance(score, int | float) else None),
        ("spare", evidence.get("spare")),
        ("valid until", data.get("valid_until")),
        ("hint", data.get("id")),
    ]
    if data.get("state") == "proposed":
        found.append(("to approve", f"foreshock hints approve {data.get('id')}"))
    return [(name, " ".join(str(text).split())[:500]) for name, text in found if text]

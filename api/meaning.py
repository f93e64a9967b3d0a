"""What an event or incident means to people: the catalogue's description of its kind and code."""

from dataclasses import asdict, fields
from typing import Any

from store import catalog
from store.incident import Incident

_INCIDENT = tuple(field.name for field in fields(Incident))


def with_meaning(row: dict[str, Any]) -> dict[str, Any]:
    """An event or incident of an answer, with what it means."""
    row["meaning"] = catalog.meaning(row["kind"], row["code"], row["severity"], row["cause"])
    return row


def incident_in_words(incident: Incident) -> dict[str, Any]:
    """The object of an incident in an answer."""
    # Not dataclasses.asdict: it copies every value, which is most of the cost of a page of a thousand.
    shown = {name: getattr(incident, name) for name in _INCIDENT}
    return with_meaning(shown | {"device": asdict(incident.device)})

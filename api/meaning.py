"""What an event or incident means to people: the catalogue's description of its kind and code."""

from dataclasses import asdict, fields
from typing import Any

from store import catalog
from store.event import Event
from store.incident import Incident

_INCIDENT = tuple(field.name for field in fields(Incident))


def meaning_of(fault: Event | Incident) -> str | None:
    """The description; None where no table knows the kind."""
    return catalog.meaning(fault.kind, fault.code, fault.severity, fault.cause)


def incident_in_words(incident: Incident) -> dict[str, Any]:
    """The object of an incident in an answer."""
    # Not dataclasses.asdict: it copies every value, which is most of the cost of a page of a thousand.
    shown = {name: getattr(incident, name) for name in _INCIDENT}
    return shown | {"device": asdict(incident.device), "meaning": meaning_of(incident)}

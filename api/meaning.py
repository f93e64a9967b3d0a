"""What an event or incident means to people: the catalogue's description of its kind and code."""

from dataclasses import asdict
from typing import Any

from store import catalog
from store.event import Event
from store.incident import Incident


def meaning_of(fault: Event | Incident) -> str | None:
    """The description; None where no table knows the kind."""
    return catalog.meaning(fault.kind, fault.code, fault.severity, fault.cause)


def incident_in_words(incident: Incident) -> dict[str, Any]:
    """The object of an incident in an answer."""
    return asdict(incident) | {"meaning": meaning_of(incident)}

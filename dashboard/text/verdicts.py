"""Verdicts in sentences: the answer of a page, what a cause is called, what it costs and what to do about it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from dashboard.text import words
from wire.verdicts import VerdictJson
from wire.words import verdicts
from wire.words.verdicts import (
    CLASSES,
    by_urgency,
    first_of,
    is_ahead,
    is_taken,
    since,
    stake,
    standing,
    suffering,
    title,
    to_do,
)

# The same words as on the pages that the API serves.
__all__ = (
    "CLASSES",
    "by_urgency",
    "first_of",
    "is_ahead",
    "is_taken",
    "since",
    "stake",
    "standing",
    "suffering",
    "title",
    "to_do",
)

STATES = {
    "open": "stands",
    "revised": "stands, revised",
    "explained": "explained by another",
    "closed": "over",
}
TINTS: dict[str, words.Tint] = {"open": "red", "revised": "orange", "explained": "gray", "closed": "gray"}


def by_incident(verdicts: Sequence[VerdictJson]) -> Mapping[str, str]:
    """What each incident is put down to, by its id."""
    found: dict[str, str] = {}
    for one in standing(verdicts):
        for incident in one.incidents:
            found.setdefault(incident, f"{title(one)} ({words.risk(one.probability)})")
    return found


def role(verdict: VerdictJson, node: str) -> str:
    """What a node is to a verdict: its cause, a victim, or touched by it."""
    if verdict.node == node:
        return "this node is the cause"
    return "this node only suffers from it" if node in verdict.victims else "this node is touched by it"


def headline(verdict: VerdictJson, now: datetime, more: int = 0) -> tuple[str, str, str]:
    """The answer, as Markdown: how bad it is; what is the cause, and what it did when; who suffers and what to do.

    Args:
        more: how many other causes stand.
    """
    return verdicts.headline(verdict, now, more, words.plain)

"""What a fault code means: severity, cause and action of each Xid, SXid and NVLink 5 error, from CSV tables.

The tables under `catalogs/` name their sources in their first lines. A code that no table knows stays an event,
with cause `unknown`: it is never dropped.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from store.event import ACTIONS, CAUSES, SEVERITIES, Action, Cause, Event, Severity

_SEVERITY: dict[str, Severity] = {word: word for word in SEVERITIES}
_CAUSE: dict[str, Cause] = {word: word for word in CAUSES}
_ACTION: dict[str, Action] = {word: word for word in ACTIONS}


# Kinds whose code says what they mean, by the table that knows it.
_CODED = {"xid": "xid", "quoted_xid": "xid", "sxid": "sxid", "sxid_detail": "sxid", "fabricmanager_nvswitch": "sxid"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One code's meaning. `decided_by_line` = the log line's own Fatal or Non-fatal decides the severity."""

    code: int
    mnemonic: str
    description: str
    severity: Severity
    cause: Cause
    action: Action
    decided_by_line: bool = False


@dataclass(frozen=True, slots=True)
class NvlinkFault:
    """One NVLink 5 error: a unit, the bits of intrinfo (two driver layouts) and the error status that mean it.

    An empty pattern or no error status means any.
    """

    xid: int
    unit: str
    intrinfo_v1: str
    intrinfo_v2: str
    error_status: tuple[int, ...]
    severity: Severity
    cause: Cause
    action: Action


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event's meaning, in one of its variants."""

    kind: str
    variant: str
    severity: Severity
    cause: Cause
    action: Action
    description: str


def rows(table: str) -> Iterator[dict[str, str]]:
    """The rows of a shipped table, without its comment lines."""
    text = resources.files("store").joinpath(f"catalogs/{table}.csv").read_text(encoding="utf-8")
    return iter(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@cache
def _faults(table: str) -> dict[int, Fault]:
    found = {}
    for row in rows(table):
        printed = row["severity"] == "printed"
        found[int(row["code"])] = Fault(
            code=int(row["code"]),
            mnemonic=row["mnemonic"],
            description=row["description"],
            severity="warning" if printed else _SEVERITY[row["severity"]],
            cause=_CAUSE[row["cause"]],
            action="watch" if printed else _ACTION[row["action"]],
            decided_by_line=printed,
        )
    return found


def xid(code: int) -> Fault | None:
    """What an Xid means, or None for a code that the table does not know."""
    return _faults("xid").get(code)


def sxid(code: int) -> Fault | None:
    """What an SXid means, or None for a code that the table does not know."""
    return _faults("sxid").get(code)


@cache
def nvlink5() -> tuple[NvlinkFault, ...]:
    """The NVLink 5 table, in its order."""
    return tuple(
        NvlinkFault(
            xid=int(row["xid"]),
            unit=row["unit"],
            intrinfo_v1=row["intrinfo_v1"],
            intrinfo_v2=row["intrinfo_v2"],
            error_status=tuple(int(word, 16) for word in row["error_status"].split("/") if word),
            severity=_SEVERITY[row["severity"]],
            cause=_CAUSE[row["cause"]],
            action=_ACTION[row["action"]],
        )
        for row in rows("nvlink5")
    )


@cache
def kinds() -> Mapping[tuple[str, str], Kind]:
    """Every kind of event that is judged by its kind alone, by kind and variant."""
    return _judgements("kinds", "kind", "variant")


@cache
def opensm_errors() -> Mapping[tuple[str, str], Kind]:
    """What the subnet manager's error codes mean, by code and function (empty: whichever says it)."""
    return _judgements("opensm", "error", "function")


def _judgements(table: str, name: str, variant: str) -> Mapping[tuple[str, str], Kind]:
    return {
        (row[name], row[variant]): Kind(
            kind=row[name],
            variant=row[variant],
            severity=_SEVERITY[row["severity"]],
            cause=_CAUSE[row["cause"]],
            action=_ACTION[row["action"]],
            description=row["description"],
        )
        for row in rows(table)
    }


@cache
def _by_kind() -> Mapping[str, tuple[Kind, ...]]:
    found: dict[str, list[Kind]] = {}
    for kind in kinds().values():
        found.setdefault(kind.kind, []).append(kind)
    return {name: tuple(rows) for name, rows in found.items()}


@cache
def meaning(kind: str, code: int | None, severity: Severity, cause: Cause) -> str | None:
    """What a kind of event means to people, in the form that has this severity and cause; None: no table knows it."""
    if kind in _CODED:
        fault = None if code is None else _faults(_CODED[kind]).get(code)
        return None if fault is None else fault.description
    forms = _by_kind().get(kind, ())
    if not forms:
        return None
    best = max(forms, key=lambda form: (form.severity == severity, form.cause == cause, form.variant == ""))
    return best.description


def judged(event: Event, variant: str = "") -> Event:
    """The event with its kind's severity, cause and action, and the kind's description where it bears no message.

    Raises:
        KeyError: the table has no such kind and variant; a test feeds every decoder, so none is met at run time.
    """
    known = kinds()[event.kind, variant]
    message = event.message or known.description
    return replace(event, severity=known.severity, cause=known.cause, action=known.action, message=message)

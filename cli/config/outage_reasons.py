"""What the reasons of outages mean at a site, the part `outage_reasons` of the server's configuration.

    outage_reasons:
      - {pattern: 'ops-bot: rotation', planned: true}
      - {pattern: 'ticket hw-\\d+', planned: false, cause: hardware}

The rows come before those of the shipped table (`store/catalogs/outage_reasons.csv`); the first that matches wins.
Patterns are in RE2's syntax and search `STATE reason`, upper and lower case alike. `foreshock ingest` reads this part
of the file alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cli.config.fill import fill, listed
from cli.config.policy_table import located, read_yaml
from cli.console.errors import Failure
from parsers.text.re2_pattern import PatternError, compiled
from store.records.event import Cause
from store.records.outage import SHIPPED_REASONS, OutageReasons, ReasonRule

CONFIG_OPTION = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The server's YAML file: its `outage_reasons` hold.",
)
_MOST_ROWS = 1000
_MOST_CHARS = 1000


@dataclass(frozen=True, slots=True)
class SiteReason:
    """A row as a site writes it."""

    pattern: str
    planned: bool
    cause: Cause = "unknown"


def outage_reasons_of(table: Mapping[str, Any], place: str) -> OutageReasons:
    """What the reasons of outages mean by a configuration's keys.

    Raises:
        Failure: an unknown key, a value of the wrong type, or a pattern that is none; names place and key.
    """
    rows = listed(table.get("outage_reasons"), f"{place}, outage_reasons")
    if len(rows) > _MOST_ROWS:
        raise Failure(f"{place}, outage_reasons: {len(rows)} rows: {_MOST_ROWS} at most")
    own = tuple(_rule(row, f"{place}, outage_reasons[{i}]") for i, row in enumerate(rows))
    return OutageReasons(own) if own else SHIPPED_REASONS


def read_outage_reasons(file: Path | None) -> OutageReasons:
    """What the reasons of outages mean by the server's file; None: what the shipped table says.

    Raises:
        Failure: it cannot be read, or does not hold; names file, line and key.
    """
    if file is None:
        return SHIPPED_REASONS
    with located(file):
        return outage_reasons_of(read_yaml(file), str(file))


def _rule(row: Any, place: str) -> ReasonRule:
    own = fill(SiteReason, row, place)
    if not own.pattern.strip() or len(own.pattern) > _MOST_CHARS:
        raise Failure(
            f"{place}, pattern: expected 1 to {_MOST_CHARS} characters; an empty one would match every reason"
        )
    try:
        compiled(own.pattern)  # by itself, so that the message quotes what the site wrote
        pattern = compiled(f"(?i:{own.pattern})")
    except PatternError as error:
        raise Failure(f"{place}, pattern: {own.pattern[:60]!r} is no pattern of RE2: {error}") from error
    return ReasonRule(pattern, own.planned, own.cause, own.pattern, own=True)

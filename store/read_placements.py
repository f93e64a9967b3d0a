"""Placements beside rows of hints, as the API and the command line show them."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from store.placements import placements_of

_SHOWN = ("scheduler", "state", "action", "detail", "asked", "observed")


def with_placements(connection: sa.Connection, hints: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same hints, each with `placements`: what each scheduler that is read back holds for it, by name."""
    found = placements_of(connection, [hint["id"] for hint in hints])
    return [
        {**hint, "placements": [{name: getattr(one, name) for name in _SHOWN} for one in found.get(hint["id"], ())]}
        for hint in hints
    ]

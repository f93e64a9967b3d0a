"""Who calls: `GET /whoami`."""

from typing import Annotated

from wire.message import JsonObject, example


class CallerJson(JsonObject, frozen=True, kw_only=True):
    """Who the server takes the caller for. `person` and `role` are null for a program.

    `two_people_above_nodes`: an approval beyond so many nodes needs two people; null: none does.
    """

    name: Annotated[str, example("person:alice@example.com token:dashboard")] = ""
    person: Annotated[str | None, example("alice@example.com")] = None
    role: Annotated[str | None, example("operator")] = None
    scopes: tuple[str, ...] = ()
    two_people_above_nodes: int | None = None

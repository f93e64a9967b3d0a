"""What to do about a fault, as its incident and its hint tell it."""

from typing import Annotated

from store.records.event import Action
from wire.message import JsonObject, example, one_of


class RemedyJson(JsonObject, frozen=True, kw_only=True):
    """What to do about a fault, and by which verdict; null: by the fault's own line, which asks for `line_action`.

    `title`: the cause as pages call it; `elsewhere`: it is no part of the fault's own node.
    """

    action: Annotated[str, one_of(Action)] = "none"
    verdict: Annotated[str | None, example("v3f0c5a9b8e4d1f8a")] = None
    title: Annotated[str, example("switch leaf004")] = ""
    elsewhere: bool = False
    line_action: Annotated[str | None, one_of(Action)] = None

"""The settings of one receiver of messages: a record that a configuration fills (docs/webhooks.md)."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """One receiver over HTTP (docs/webhooks.md).

    `secret` is `whsec_` and base64 of 24 to 64 bytes, unless the format has another; `secrets` and the lines of
    `secret_files`, which are read anew for every message, sign as well.
    """

    name: str
    url: str = field(repr=False)  # a chat's holds its token
    secret: str = field(default="", repr=False)
    timeout_s: float = 15.0  # of a whole attempt
    send_shadow: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)
    secret_files: tuple[str, ...] = ()
    format: Literal[
        "standard", "cloudevents", "pagerduty", "slack", "feishu", "dingtalk", "alertmanager", "otlp", "template"
    ] = "standard"
    template_file: str = ""  # of format template
    content_type: str = "application/json"  # of format template
    actions: tuple[str, ...] = ()  # that it is told; none: all, of chats and pagers LOUD_ACTIONS
    states: tuple[str, ...] = ()  # approved (the default), proposed: that a hint waits for a person, repair: a ticket
    server: str = ""  # https://...: where people and programs reach this server; for the links in a ticket
    verdicts: bool = False  # it is told of verdicts, too, as they open, are revised and end (docs/verdicts.md)
    allow: tuple[str, ...] = ()  # networks that its name may lead to
    avoid_takes: bool = False  # what it makes of an avoid takes the node out of use: budgets.avoid_nodes and so on hold
    proxy: str = ""  # http://...: it resolves the name

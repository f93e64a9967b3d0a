"""The kinds of receivers that a configuration may name: one file and one line each."""

from collections.abc import Callable, Mapping

from schedulers.scheduler import Scheduler
from schedulers.settings import WebhookSettings
from schedulers.webhook import Webhook

SCHEDULERS: Mapping[str, Callable[[WebhookSettings], Scheduler]] = {
    "webhook": Webhook,
}

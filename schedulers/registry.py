"""The kinds of receivers that a configuration may name: one file and one line each.

What takes messages alone is in SCHEDULERS; what can be read back, with the record of its settings, in ACTUATORS.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schedulers.kubernetes.access import KubernetesSettings
from schedulers.kubernetes.actuator import Kubernetes
from schedulers.policy.settings import ActuatorSettings
from schedulers.reconcile.actuator import Actuator
from schedulers.reconcile.delivery import HintReceiver
from schedulers.slurm.actuator import Slurm
from schedulers.slurm.commands import SlurmSettings
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.webhook import Webhook


@dataclass(frozen=True, slots=True)
class ActuatorKind:
    """The record that a configuration fills, and what is made of it; making opens no connection."""

    settings: type[Any]
    make: Callable[[Any], Actuator]


SCHEDULERS: Mapping[str, Callable[[WebhookSettings], HintReceiver]] = {
    "webhook": Webhook,
}
ACTUATORS: Mapping[str, ActuatorKind] = {
    "slurm": ActuatorKind(SlurmSettings, Slurm),
    "kubernetes": ActuatorKind(KubernetesSettings, Kubernetes),
}


def avoid_takers(settings: Iterable[ActuatorSettings]) -> frozenset[str]:
    """The schedulers that take a node out of use for an `avoid`, which has a budget there."""
    return frozenset(one.name for one in settings if one.avoid_takes)


def make_actuator(settings: ActuatorSettings, kinds: Mapping[str, ActuatorKind] = ACTUATORS) -> Actuator:
    """The scheduler that a record of settings is of.

    Raises:
        TypeError: the record is of no known kind.
    """
    for kind in kinds.values():
        if type(settings) is kind.settings:
            return kind.make(settings)
    raise TypeError(f"{type(settings).__name__} is the settings of no kind of scheduler: {', '.join(kinds) or 'none'}")

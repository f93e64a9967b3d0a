"""Events on nodes, pods and jobs: `kubectl describe node` shows who did what, and why.

The same said again is counted on the Event that stands, not written anew. What cannot be written stops nothing.
"""

import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from schedulers.kubernetes.client import MERGE_PATCH, ApiError, KubernetesClient
from schedulers.reconcile.actuator import SchedulerAwayError
from store.visible_text import visible

log = logging.getLogger(__name__)

_MOST_REMEMBERED = 2000
_MOST_MESSAGE = 1000  # the API server takes 1,024


@dataclass(frozen=True, slots=True)
class EventSubject:
    """The object that an Event is about; of a node, kubectl looks for its name in the place of the uid."""

    kind: str
    name: str
    uid: str
    namespace: str = "default"
    api_version: str = "v1"


def node_subject(name: str) -> EventSubject:
    """A node."""
    return EventSubject("Node", name, name)


class EventRecorder:
    """Writes Events, from any number of threads."""

    def __init__(self, client: KubernetesClient, instance: str) -> None:
        self._client, self._instance = client, instance
        self._lock = Lock()
        self._told: OrderedDict[tuple[EventSubject, str, str], tuple[str, int]] = OrderedDict()

    def tell(self, subject: EventSubject, reason: str, message: str, is_warning: bool = False) -> str:
        """Write an Event, or count it; why it could not be, else nothing."""
        key = (subject, reason, visible(message)[:_MOST_MESSAGE])
        try:
            with self._lock:
                known = self._told.get(key)
            if known is None or not self._count(known):
                known = (self._write(key, is_warning), 0)
        except (ApiError, SchedulerAwayError) as error:
            log.warning("no Event on %s %s: %s", subject.kind, subject.name, error)
            return f"no Event: {error}"
        with self._lock:
            self._told[key] = (known[0], known[1] + 1)
            self._told.move_to_end(key)
            while len(self._told) > _MOST_REMEMBERED:
                self._told.popitem(last=False)
        return ""

    def _count(self, known: tuple[str, int]) -> bool:
        """Whether the Event still stands; the server drops them after an hour."""
        path, count = known
        try:
            self._client.call("PATCH", path, {"count": count + 1, "lastTimestamp": _now()}, MERGE_PATCH)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _write(self, key: tuple[EventSubject, str, str], is_warning: bool) -> str:
        subject, reason, message = key
        name = f"{subject.name[:200]}.{secrets.token_hex(8)}"
        path = f"/api/v1/namespaces/{subject.namespace}/events"
        times: dict[str, Any] = {"firstTimestamp": _now(), "lastTimestamp": _now(), "count": 1}
        about = {"kind": subject.kind, "name": subject.name, "uid": subject.uid, "apiVersion": subject.api_version}
        if subject.kind != "Node":
            about["namespace"] = subject.namespace
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": subject.namespace},
            "involvedObject": about,
            "type": "Warning" if is_warning else "Normal",
            "reason": reason,
            "message": message,
            "source": {"component": "foreshock"},
            "reportingComponent": "foreshock",
            "reportingInstance": self._instance,
            **times,
        }
        self._client.call("POST", path, document)
        return f"{path}/{name}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

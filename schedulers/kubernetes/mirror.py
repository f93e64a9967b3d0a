"""The nodes of a cluster, kept up to date by a watch: 12,500 of them are not listed anew at every look.

One list in pages, then a thread that follows changes. At each look it is seen that the server still answers: what a
watch that fell silent had last said is not passed off as news. A watch that breaks is begun anew with a list.
"""

import logging
import time
from collections.abc import Sequence
from threading import Lock, Thread

import msgspec

from schedulers.kubernetes.client import ApiError, KubernetesClient
from schedulers.kubernetes.node import KubernetesNode
from schedulers.reconcile.actuator import SchedulerAwayError

log = logging.getLogger(__name__)

NODES = "/api/v1/nodes"
_PAGE = 500
_WATCH_S = 300  # after which the server ends a watch, and it is taken up where it was
_SILENCE_S = 150.0  # the server sends a bookmark each minute or so
_IDLE_S = 1800.0  # who has not been asked for so long follows no more


class _NodeListMeta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - Kubernetes' own name
    more: str = msgspec.field(name="continue", default="")


class _NodeList(msgspec.Struct):
    metadata: _NodeListMeta
    items: list[KubernetesNode] | None = None


class _WatchChange(msgspec.Struct):
    type: str
    object: msgspec.Raw


class NodeMirror:
    """The nodes as they are, some milliseconds late, but never older than our own last write."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._lock = Lock()
        self._nodes: dict[str, KubernetesNode] = {}
        self._version = ""
        self._thread: Thread | None = None
        self._asked = time.monotonic()
        self._closed = False

    def nodes(self) -> Sequence[KubernetesNode]:
        """Every node.

        Raises:
            ApiError, SchedulerAwayError: the server does not answer now.
        """
        self._asked = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            self._list()
            self._thread = Thread(target=self._follow, name="kubernetes-nodes", daemon=True)
            self._thread.start()
        else:
            self._client.call("GET", NODES, query={"limit": "1"})
        with self._lock:
            return list(self._nodes.values())

    def get(self, name: str) -> KubernetesNode | None:
        """A node as it was last seen."""
        with self._lock:
            return self._nodes.get(name)

    def put(self, node: KubernetesNode) -> None:
        """A node as the server answered a write of ours: what the watch brings late of it is older, and left."""
        with self._lock:
            was = self._nodes.get(node.name)
            if was is not None and was.version <= node.version:
                self._nodes[node.name] = node

    def close(self) -> None:
        """Follow no more; closing the client ends the thread."""
        self._closed = True

    def _list(self) -> None:
        nodes: dict[str, KubernetesNode] = {}
        query = {"limit": str(_PAGE)}
        while True:
            try:
                page = self._client.get(NODES, _NodeList, query)
            except ApiError as error:
                if error.status != 410 or "limit" not in query:
                    raise
                nodes, query = {}, {}  # the pages took longer than the server remembers: all at once
                continue
            nodes.update((node.name, node) for node in page.items or [])
            if not page.metadata.more:
                break
            query = {"limit": str(_PAGE), "continue": page.metadata.more}
        with self._lock:
            self._nodes, self._version = nodes, page.metadata.resourceVersion

    def _follow(self) -> None:
        try:
            while not self._is_over():
                query = {
                    "watch": "1",
                    "resourceVersion": self._version,
                    "allowWatchBookmarks": "true",
                    "timeoutSeconds": str(_WATCH_S),
                }
                with self._client.follow(NODES, query, _SILENCE_S) as lines:
                    for line in lines:
                        self._take(line)
                        if self._is_over():
                            return
        except (ApiError, SchedulerAwayError) as error:
            log.info("the watch of nodes ends, a list follows: %s", error)

    def _is_over(self) -> bool:
        return self._closed or time.monotonic() - self._asked > _IDLE_S

    def _take(self, line: str) -> None:
        """One line of the watch.

        Raises:
            SchedulerAwayError: the server can go on no more from where we are.
        """
        if not line:
            return
        change = self._client.decode(line.encode(), _WatchChange)
        if change.type == "ERROR":
            raise SchedulerAwayError(f"the watch was ended: {bytes(change.object)[:200]!r}")
        node = self._client.decode(bytes(change.object), KubernetesNode)
        with self._lock:
            self._version = node.metadata.resourceVersion
            was = self._nodes.get(node.name)
            if change.type == "DELETED":
                self._nodes.pop(node.name, None)
            elif change.type in ("ADDED", "MODIFIED") and (was is None or was.version <= node.version):
                self._nodes[node.name] = node

"""Kubernetes as a scheduler that is brought to a state and read back (`schedulers/reconcile/actuator.py`).

    cluster = Kubernetes(KubernetesSettings("prod", kubeconfig="/etc/foreshock/kubeconfig"))
    cluster.observe()
    cluster.carry_out([Order("gpu-017", hint.id, "cordon", "foreshock: xid 79 on gpu 0", until)])

Every write is a patch of the node as it was last seen; where it has changed since, it is read and judged again, so
that a person's cordon of the same second is seen and left alone. Nothing is written without the lease.
"""

import logging
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import TypeVar

from schedulers.kubernetes.access import AccessError, KubernetesSettings, find_access
from schedulers.kubernetes.client import JSON_PATCH, STRATEGIC_PATCH, ApiError, KubernetesClient
from schedulers.kubernetes.events import EventRecorder, node_subject
from schedulers.kubernetes.lease import WriterLease
from schedulers.kubernetes.mirror import NODES, NodeMirror
from schedulers.kubernetes.node import KubernetesNode, read_hold, read_marks
from schedulers.kubernetes.patch import NodePatch, PatchRefusal, change_of, drained
from schedulers.kubernetes.pods import EvictionRound, ask_job, evict, eviction_version, must_go, pods_of_node
from schedulers.reconcile.actuator import Hold, JobOrder, Order, OrderReport, SchedulerAwayError

log = logging.getLogger(__name__)

_TRIES = 6  # of a patch whose node others change at the same time
_DRY_RUN = "dry run: the API server would take it"
_DONE = {"watch": "Watched", "avoid": "Avoided", "cordon": "Cordoned", "drain": "Draining", "release": "Released"}
_AnyOrder = TypeVar("_AnyOrder", Order, JobOrder)


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """What is open towards one cluster."""

    client: KubernetesClient
    mirror: NodeMirror
    lease: WriterLease
    notices: EventRecorder
    policy: str  # the API version of evictions


class Kubernetes:
    """One cluster. Making it opens no connection; the first that is asked of it does."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._identity = settings.identity or socket.gethostname()
        self._lock = Lock()
        self._link: ClusterConnection | None = None
        self._pool = ThreadPoolExecutor(settings.at_once, thread_name_prefix=f"kubernetes-{settings.name}")

    @property
    def name(self) -> str:
        """As configured."""
        return self._settings.name

    @property
    def address(self) -> str:
        """The API server, or what tells it."""
        if self._link is not None:
            return self._link.client.url
        return self._settings.kubeconfig or os.environ.get("KUBECONFIG") or "the pod's own cluster"

    @property
    def avoid_takes(self) -> bool:
        """Whether an `avoid` takes a node; a taint that is only preferred does not."""
        return self._settings.avoid_takes

    def started(self) -> datetime | None:
        """None: what the API server has taken is saved."""
        return None

    def observe(self) -> Sequence[Hold]:
        """Every node.

        Raises:
            SchedulerAwayError: the cluster cannot be asked, or does not let us.
        """
        try:
            nodes = self._connect().mirror.nodes()
        except (ApiError, SchedulerAwayError) as error:
            self._disconnect()  # what has been rotated meanwhile, certificates say, is read anew
            raise SchedulerAwayError(_remedy(error)) from error
        return [read_hold(node, self._settings) for node in nodes]

    def carry_out(self, orders: Sequence[Order]) -> Sequence[OrderReport]:
        """Bring each node where it is to be; all of them at a time, as far as the operator allows.

        Raises:
            SchedulerAwayError: the cluster does not answer; some orders may have been carried out.
        """
        return self._each(orders, lambda order: order.node, self._bring)

    def ask_jobs(self, orders: Sequence[JobOrder]) -> Sequence[OrderReport]:
        """Tell running jobs what is asked of them, by Events and, where it is set, annotations.

        Raises:
            SchedulerAwayError: as above.
        """
        return self._each(
            orders,
            lambda order: order.job,
            lambda link, order: ask_job(link.client, link.notices, self._settings, order),
        )

    def close(self) -> None:
        """Give the lease back, and follow the cluster no more."""
        if self._link is not None and not self._settings.dry_run:
            try:
                self._link.lease.release()
            except (ApiError, SchedulerAwayError) as error:
                log.info("%s: the lease runs out by itself: %s", self.name, error)
        self._disconnect()
        self._pool.shutdown()

    def _connect(self) -> ClusterConnection:
        with self._lock:
            if self._link is None:
                settings = self._settings
                try:
                    access = find_access(settings.kubeconfig, settings.context)
                except AccessError as error:
                    raise SchedulerAwayError(str(error)) from error
                client = KubernetesClient(access, settings)
                policy = eviction_version(client) if settings.evict else ""
                namespace = settings.namespace or access.namespace or "foreshock"
                lease = WriterLease(client, namespace, self._identity, settings.lease_s)
                self._link = ClusterConnection(
                    client, NodeMirror(client), lease, EventRecorder(client, self._identity), policy
                )
            return self._link

    def _disconnect(self) -> None:
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.mirror.close()
            link.client.close()

    def _each(
        self,
        orders: Sequence[_AnyOrder],
        subject: Callable[[_AnyOrder], str],
        do: Callable[[ClusterConnection, _AnyOrder], OrderReport],
    ) -> Sequence[OrderReport]:
        """Every order by its own thread, under the lease."""
        if not orders:
            return []
        link = self._connect()
        try:
            other = None if self._settings.dry_run else link.lease.acquire()
        except ApiError as error:
            other = _remedy(error)
        if other is not None:
            return [OrderReport(subject(order), "retry", other) for order in orders]

        def attempt(order: _AnyOrder) -> OrderReport | SchedulerAwayError:
            try:
                return do(link, order)
            except ApiError as error:
                return _report(subject(order), error)
            except SchedulerAwayError as error:
                return error

        came = list(self._pool.map(attempt, orders))
        away = [result for result in came if isinstance(result, SchedulerAwayError)]
        if away:
            raise away[0]
        return [result for result in came if isinstance(result, OrderReport)]

    def _bring(self, link: ClusterConnection, order: Order) -> OrderReport:
        """One node, to where its order says."""
        node = link.mirror.get(order.node) or self._read(link, order.node)
        for _ in range(_TRIES):
            change = change_of(node, order, self._settings, datetime.now(UTC))
            if isinstance(change, PatchRefusal):
                return OrderReport(order.node, change.result, change.detail)
            try:
                node = self._write(link, node, change)
                break
            except ApiError as error:
                if not error.is_conflict:
                    raise
            node = self._read(link, order.node)
        else:
            return OrderReport(order.node, "retry", f"changed by others at the same time, {_TRIES} times in a row")
        detail = [change.detail] if change.detail else []
        if not change.is_none:
            reason = f"Foreshock{_DONE[order.action]}"
            said = link.notices.tell(node_subject(node.name), reason, _message(order), order.action != "release")
            detail += [said] if said else []
        if self._settings.dry_run:
            return OrderReport(order.node, "refused", _DRY_RUN)
        if order.action == "drain" and self._settings.evict:
            return self._empty(link, node, order, detail)
        return OrderReport(order.node, "done", "; ".join(detail))

    def _write(self, link: ClusterConnection, node: KubernetesNode, change: NodePatch) -> KubernetesNode:
        """Both patches of a change.

        Raises:
            ApiError: is_conflict where the node has changed since.
        """
        path = f"{NODES}/{node.name}"
        if change.patch:
            node = link.client.decode(link.client.call("PATCH", path, change.patch, JSON_PATCH), KubernetesNode)
        if change.condition is not None:
            body = link.client.call("PATCH", f"{path}/status", change.condition, STRATEGIC_PATCH)
            node = link.client.decode(body, KubernetesNode)
        if not change.is_none and not self._settings.dry_run:
            link.mirror.put(node)
        return node

    def _empty(self, link: ClusterConnection, node: KubernetesNode, order: Order, detail: list[str]) -> OrderReport:
        """One round of evictions; the node is drained when nothing is left that had to go."""
        pods = [pod for pod in pods_of_node(link.client, node.name) if must_go(pod, self._settings)]
        came = evict(link.client, pods, link.policy) if pods else EvictionRound()
        if came.left:
            if came.blocked:
                link.notices.tell(node_subject(node.name), "ForeshockEvictionHeldBack", came.words, is_warning=True)
            return OrderReport(order.node, "retry", "; ".join([came.words, *detail]))
        if read_marks(node, self._settings).action != "drain":
            patch = drained(node, self._settings, datetime.now(UTC))
            self._write(link, node, NodePatch(patch, None))
            link.notices.tell(node_subject(node.name), "ForeshockDrained", _message(order), is_warning=True)
        return OrderReport(order.node, "done", "; ".join(detail))

    def _read(self, link: ClusterConnection, name: str) -> KubernetesNode:
        node = link.client.get(f"{NODES}/{name}", KubernetesNode)
        link.mirror.put(node)
        return node


def _message(order: Order) -> str:
    return f"{order.reason} id={order.hint}"


def _report(subject: str, error: ApiError) -> OrderReport:
    """What a refusal of the API server means for an order."""
    if error.status == 404:
        return OrderReport(subject, "absent", str(error))
    return OrderReport(subject, "refused" if error.is_invalid else "retry", _remedy(error))


def _remedy(error: Exception) -> str:
    status = getattr(error, "status", None)
    if status == 401:
        return f"{error}: the token or certificate is not accepted"
    if status == 403:
        return f"{error}: deploy/kubernetes/rbac.yaml has the rights that are needed"
    return str(error)

"""The lease of the one writer: of several Foreshocks on one cluster, one writes and the others wait.

coordination.k8s.io/v1 Lease `foreshock`, renewed before anything is written. Another's lease is over when it has shown
no change for as long as it said, by our own clock: the two machines' clocks need not agree.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from schedulers.kubernetes.client import ApiError, KubernetesClient
from schedulers.kubernetes.node import ObjectMetadata

NAME = "foreshock"


class _LeaseSpec(msgspec.Struct):
    holderIdentity: str | None = None  # noqa: N815 - Kubernetes' own names
    leaseDurationSeconds: int | None = None  # noqa: N815
    renewTime: str | None = None  # noqa: N815
    acquireTime: str | None = None  # noqa: N815
    leaseTransitions: int | None = None  # noqa: N815


class _LeaseObject(msgspec.Struct):
    metadata: ObjectMetadata
    spec: _LeaseSpec


class WriterLease:
    """The right to write, as far as one instance has it."""

    def __init__(
        self,
        client: KubernetesClient,
        namespace: str,
        identity: str,
        duration_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._identity, self._clock = client, identity, clock
        self._duration_s = max(int(duration_s), 1)
        self._namespace = namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._renewed: float | None = None
        self._seen: tuple[str, float] | None = None  # another's lease: its version, and when we first saw that

    def acquire(self) -> str | None:
        """None when we may write for some time yet; else who may, in words.

        Raises:
            ApiError, SchedulerAwayError: the lease cannot be read or written.
        """
        now = self._clock()
        if self._renewed is not None and now - self._renewed < self._duration_s / 3:
            return None
        self._renewed = None
        try:
            found = self._client.get(f"{self._path}/{NAME}", _LeaseObject)
        except ApiError as error:
            if error.status != 404:
                raise
            return self._write("POST", self._path, None)
        holder = found.spec.holderIdentity
        if holder and holder != self._identity and not self._is_over(found, now):
            return f"another Foreshock writes to this cluster: {holder} (lease {self._namespace}/{NAME})"
        return self._write("PUT", f"{self._path}/{NAME}", found)

    def release(self) -> None:
        """Let another write at once. One that has run out is left: who has it now may go by the same identity.

        Raises:
            ApiError, SchedulerAwayError: as above.
        """
        renewed, self._renewed = self._renewed, None
        if renewed is None or self._clock() - renewed >= self._duration_s:
            return
        found = self._client.get(f"{self._path}/{NAME}", _LeaseObject)
        if found.spec.holderIdentity == self._identity:
            self._client.call("PUT", f"{self._path}/{NAME}", self._document(found, holder=""))

    def _is_over(self, found: _LeaseObject, now: float) -> bool:
        version = found.metadata.resourceVersion
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        return now - self._seen[1] > (found.spec.leaseDurationSeconds or self._duration_s)

    def _write(self, method: str, path: str, found: _LeaseObject | None) -> str | None:
        started = self._clock()
        try:
            self._client.call(method, path, self._document(found, self._identity))
        except ApiError as error:
            if error.status == 409:
                return "another Foreshock takes the lease of this cluster"
            raise
        self._renewed = started
        return None

    def _document(self, found: _LeaseObject | None, holder: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        was = found.spec if found is not None else _LeaseSpec()
        is_same = was.holderIdentity == holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": self._duration_s,
            "renewTime": now,
            "acquireTime": was.acquireTime if is_same and was.acquireTime else now,
            "leaseTransitions": (was.leaseTransitions or 0) + (0 if is_same or found is None else 1),
        }
        metadata = {"name": NAME, "namespace": self._namespace}
        if found is not None:
            metadata["resourceVersion"] = found.metadata.resourceVersion
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

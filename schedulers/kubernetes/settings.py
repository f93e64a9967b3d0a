"""What an operator may set about one Kubernetes cluster. Defaults touch no pod and need the fewest rights."""

import re
from dataclasses import dataclass

_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+")


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """One cluster. Without a kubeconfig and outside of a pod, `$KUBECONFIG` or `~/.kube/config` is taken."""

    name: str
    kubeconfig: str | None = None  # a path; None: the pod's own account where there is one
    context: str | None = None  # of the kubeconfig; None: its current one
    namespace: str | None = None  # of our lease; None: the pod's or the context's, else `foreshock`
    identity: str | None = None  # who writes, for the lease; None: the host's name
    domain: str = "foreshock.dev"  # of taint, annotations and labels
    timeout_s: float = 10.0  # of one request
    requests_per_s: float = 200.0
    at_once: int = 16  # requests at a time
    lease_s: float = 30.0  # another instance may write after this long without a sign of us
    dry_run: bool = False  # every write is checked by the API server and none is kept
    evict: bool = False  # a drain evicts pods; without it the node is cordoned and its pods end by themselves
    evict_unmanaged: bool = False  # also pods that nobody makes anew
    keep_namespaces: tuple[str, ...] = ("kube-system",)  # whose pods are never evicted
    annotate_pods: bool = False  # what is asked of a job stands on its pods, too (they must be patched for it)
    # Annotations, by their name behind the domain or whole, that say that another tool holds a node.
    peer_marks: tuple[str, ...] = ("cordon-by", "cordon_", "cordoned", "node-cordon-reason")
    # Taints by which others take a node out of service, by the beginning of their key.
    peer_taints: tuple[str, ...] = (
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupt",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
    )

    def __post_init__(self) -> None:
        """Refuse what the API server would refuse of every write.

        Raises:
            ValueError: with the remedy.
        """
        if not _DOMAIN.fullmatch(self.domain) or len(self.domain) > 200:
            raise ValueError(f"domain: {self.domain!r} is no DNS name such as foreshock.dev")
        if self.domain.endswith(("kubernetes.io", "k8s.io")):
            raise ValueError(f"domain: {self.domain} is Kubernetes' own: take one of yours")
        for name in ("timeout_s", "requests_per_s", "lease_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: more than 0 is needed")
        if not 1 <= self.at_once <= 256:
            raise ValueError("at_once: 1 to 256")
        if self.timeout_s >= self.lease_s:
            raise ValueError("timeout_s must be less than lease_s: else a write may come after the lease has gone")

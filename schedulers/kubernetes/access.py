"""Where a cluster's API server is and who we are to it: a pod's own account, or a kubeconfig.

A pod's token, a `tokenFile` and an `exec` plugin's token change in time: tokens are asked for at each request.
"""

import base64
import json
import os
import re
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from wire.access.address import clear_text

_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_TIMEOUT_S = 60.0
_EXEC_EARLY_S = 60.0  # a token is asked for anew so long before it ends
_UNKNOWN = {
    "auth-provider": "use an exec plugin",
    "username": "use a token or a certificate",
    "impersonate": "use that account's own",
    "as": "use that account's own",
}


class AccessError(ValueError):
    """A kubeconfig or pod that cannot be used; the message names the place and the remedy."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The way to one API server. `token` gives the bearer token of the moment, None where a certificate speaks."""

    url: str
    trust: ssl.SSLContext
    namespace: str | None = None
    server_name: str | None = None  # on the server's certificate, where it is not the host's
    token: Callable[[], str | None] = field(default=lambda: None, repr=False)


def find_access(kubeconfig: str | None, context: str | None) -> ClusterAccess:
    """The pod's own account where no kubeconfig is named, else the kubeconfig.

    Raises:
        AccessError: there is neither, or it cannot be used.
    """
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST") and (_POD / "token").exists():
        return of_pod(os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    named = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return of_kubeconfig(Path(named).expanduser() if named else Path.home() / ".kube/config", context)


def of_pod(host: str, port: str, secrets: Path = _POD) -> ClusterAccess:
    """The account that a pod has been given.

    Raises:
        AccessError: its files are not there.
    """
    try:
        trust = ssl.create_default_context(cafile=str(secrets / "ca.crt"))
        namespace = (secrets / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise AccessError(f"{secrets}: {error.strerror}: is automountServiceAccountToken off?") from error
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ClusterAccess(url, trust, namespace, token=lambda: _read_token(secrets / "token"))


def of_kubeconfig(path: Path, context: str | None) -> ClusterAccess:
    """The cluster and user of a kubeconfig's context.

    Raises:
        AccessError: it is not there, broken, or asks for what is not supported.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}: name a kubeconfig, or run in a pod") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AccessError(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise AccessError(f"{path}: not a kubeconfig")
    chosen = _named(document, "context", context or document.get("current-context"), path)
    cluster = _named(document, "cluster", chosen.get("cluster"), path)
    user = _named(document, "user", chosen.get("user"), path) if chosen.get("user") else {}
    if not str(cluster.get("server", "")).startswith(("https://", "http://")):
        raise AccessError(f"{path}: cluster {chosen.get('cluster')!r} has no server: https://HOST:PORT")
    if "proxy-url" in cluster:
        raise AccessError(f"{path}: proxy-url is not supported")
    for key, remedy in _UNKNOWN.items():
        if key in user:
            raise AccessError(f"{path}: user {chosen['user']!r} has {key}, which is not supported: {remedy}")
    url, name = str(cluster["server"]).rstrip("/"), cluster.get("tls-server-name")
    bears_token = any(user.get(key) for key in ("token", "tokenFile", "exec"))
    if bears_token and (why := clear_text(url)) is not None:
        raise AccessError(f"{path}: cluster {chosen.get('cluster')!r}: {why}")
    return ClusterAccess(url, _trust(cluster, user, path), chosen.get("namespace"), name, _token(cluster, user, path))


def _named(document: Mapping[str, Any], kind: str, name: Any, path: Path) -> Mapping[str, Any]:
    for item in document.get(f"{kind}s") or []:
        if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(kind), dict):
            found: Mapping[str, Any] = item[kind]
            return found
    raise AccessError(f"{path}: no {kind} named {name!r}")


def _content(table: Mapping[str, Any], key: str, path: Path) -> bytes | None:
    """What `KEY-data` holds or the file of `KEY`, beside the kubeconfig where it is relative."""
    try:
        if table.get(f"{key}-data"):
            return base64.b64decode(table[f"{key}-data"], validate=True)
        return (path.parent / table[key]).read_bytes() if table.get(key) else None
    except (ValueError, TypeError) as error:
        raise AccessError(f"{path}: {key}-data is not base64") from error
    except OSError as error:
        raise AccessError(f"{path}: {key}: {error.filename}: {error.strerror}") from error


def _trust(cluster: Mapping[str, Any], user: Mapping[str, Any], path: Path) -> ssl.SSLContext:
    """What certifies the server, and our own certificate where there is one."""
    authority, certificate, key = (
        _content(cluster, "certificate-authority", path),
        _content(user, "client-certificate", path),
        _content(user, "client-key", path),
    )
    try:
        trust = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        if certificate and key:
            with tempfile.TemporaryDirectory() as folder:  # Python reads keys from files alone; this one is ours only
                pair = Path(folder) / "pair.pem"
                pair.write_bytes(certificate + b"\n" + key)
                trust.load_cert_chain(pair)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise AccessError(f"{path}: its certificates cannot be used: {error}") from error
    return trust


def _token(cluster: Mapping[str, Any], user: Mapping[str, Any], path: Path) -> Callable[[], str | None]:
    if user.get("tokenFile"):
        file = path.parent / user["tokenFile"]
        return lambda: _read_token(file)
    if user.get("token"):
        token = str(user["token"])
        return lambda: token
    if isinstance(user.get("exec"), dict):
        return ExecToken(user["exec"], cluster, path)
    return lambda: None


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}: the token is read at each request") from error


class ExecToken:
    """The token that a kubeconfig's `exec` plugin prints, kept until shortly before it ends."""

    def __init__(self, table: Mapping[str, Any], cluster: Mapping[str, Any], path: Path) -> None:
        if not table.get("command"):
            raise AccessError(f"{path}: exec has no command")
        command = str(table["command"])
        self._words = [str(path.parent / command) if "/" in command else command, *map(str, table.get("args") or [])]
        self._environment = {item["name"]: str(item["value"]) for item in table.get("env") or []}
        spec = {"cluster": {"server": cluster["server"]}, "interactive": False}
        version = table.get("apiVersion", "client.authentication.k8s.io/v1")
        self._request = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})
        self._place = f"{path}: exec {command}"
        self._token, self._until = "", 0.0

    def __call__(self) -> str:
        """The token.

        Raises:
            AccessError: the plugin fails, or prints none.
        """
        if time.time() < self._until:
            return self._token
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": self._request}
        try:
            done = subprocess.run(  # noqa: S603 - the operator's own plugin, as kubectl runs it
                self._words, env=environment, capture_output=True, check=True, timeout=_EXEC_TIMEOUT_S
            )
            status = json.loads(done.stdout)["status"]
            self._token = str(status["token"])
            end = status.get("expirationTimestamp")
            self._until = datetime.fromisoformat(end).timestamp() - _EXEC_EARLY_S if end else float("inf")
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip()[-200:]
            raise AccessError(f"{self._place}: exit code {error.returncode}: {said}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AccessError(f"{self._place}: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise AccessError(f"{self._place}: it printed no token (certificates are not supported)") from error
        return self._token

    def forget(self) -> None:
        """The server refuses the token: the next call asks for another."""
        self._until = 0.0


# What an operator may set about one Kubernetes cluster. Defaults touch no pod and need the fewest rights.

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
    slinky: bool = False  # a cordon's reason is left where slurm-operator takes that of its drain from
    # Annotations, by their name behind the domain or whole, that say that another tool holds a node.
    peer_marks: tuple[str, ...] = ("cordon-by", "cordon_", "cordoned", "node-cordon-reason")
    # Taints by which others take a node out of service, by the beginning of their key.
    peer_taints: tuple[str, ...] = (
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupt",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
        "nvsentinel.dgxc.nvidia.com/",
    )

    @property
    def avoid_takes(self) -> bool:
        """Never: PreferNoSchedule keeps pods off only while there is other room."""
        return False

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

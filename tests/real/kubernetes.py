"""A real Kubernetes control plane on the loopback, with virtual GPU nodes that a stand-in for kubelets keeps alive.

with kubernetes(nodes=4) as cluster:
    cluster.kubectl("cordon", "gpu001")
    agent = cluster.agent(tmp_path)  # a kubeconfig with the rights of deploy/kubernetes/rbac.yaml, and no others

etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as whoever runs the tests, in a folder of their
own. The last three come from `.ci/kubernetes`.
"""

import base64
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from real.foreshock import free_port
from real.kubelets import Kubelets
from real.kubernetes_options import CONTROLLERS, api_options, etcd_options
from real.patience import patience
from real.programs import bound, missing, need, stop, wait_for

RBAC = Path(__file__).parents[2] / "deploy/kubernetes/rbac.yaml"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foreshock/kubernetes"


class KubectlError(RuntimeError):
    """kubectl fails; with what it says."""


@dataclass
class Kubernetes:
    """A running control plane."""

    folder: Path
    binaries: Path
    port: int
    etcd: str
    token: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kubelets: Kubelets | None = None

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate by which the API server is known."""
        return self.folder / "certs/apiserver.crt"

    @property
    def admin(self) -> Path:
        """The kubeconfig of one who may do all, by token."""
        return self.folder / "admin.conf"

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """What kubectl prints.

        Raises:
            KubectlError: it fails.
        """
        environment = {**os.environ, "KUBECONFIG": str(self.admin), "HOME": str(self.folder)}
        command = [need("kubectl", "kubernetes-client"), *words]
        done = subprocess.run(
            command, env=environment, input=text, capture_output=True, text=True, check=False, timeout=patience(60)
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def client(self) -> httpx2.Client:
        """HTTP as one who may do all."""
        return httpx2.Client(
            base_url=self.url,
            verify=_trust(self.authority),
            headers={"authorization": f"Bearer {self.token}"},
            timeout=patience(20.0),
            trust_env=False,
        )

    def get(self, path: str) -> Any:
        """The object at a path of the API."""
        with self.client() as client:
            answer = client.get(path)
            answer.raise_for_status()
            return answer.json()

    def delete(self, path: str) -> None:
        """End the object at a path of the API, if it is there."""
        with self.client() as client:
            answer = client.delete(path)
            assert answer.is_success or answer.status_code == 404, answer.text

    def node(self, name: str) -> Any:
        """A node's object."""
        return self.get(f"/api/v1/nodes/{name}")

    @contextmanager
    def nodes(self, count: int) -> Iterator[list[str]]:
        """Fresh nodes, ready for work; gone at the end."""
        assert self.kubelets is not None
        names = [f"gpu-{secrets.token_hex(4)}" for _ in range(count)]
        self.kubelets.add(names)
        try:
            wait_for("the new nodes are ready", lambda: _are_schedulable(self, names))
            yield names
        finally:
            self.kubelets.remove(names)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """`kubectl apply` of objects."""
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def service_token(self, account: str = "foreshock", namespace: str = "foreshock") -> str:
        """A fresh token of a service account, good for an hour."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        with self.client() as client:
            answer = client.post(path, json=body)
            answer.raise_for_status()
            token: str = answer.json()["status"]["token"]
        return token

    def kubeconfig(self, path: Path, user: Mapping[str, Any], namespace: str = "foreshock") -> Path:
        """A kubeconfig of one user."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sim", "cluster": cluster}],
            "users": [{"name": "me", "user": dict(user)}],
            "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "me", "namespace": namespace}}],
            "current-context": "sim",
        }
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        return path

    def agent(self, folder: Path, account: str = "foreshock") -> Path:
        """The kubeconfig of a service account, its token in a file beside it."""
        (folder / "token").write_text(self.service_token(account))
        return self.kubeconfig(folder / f"{account}.conf", {"tokenFile": "token"})

    def signed(self, name: str) -> Mapping[str, str]:
        """A user of a kubeconfig by certificate, who may do all."""
        key, request, made = (self.folder / "certs" / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        authority = ["-CA", str(self.folder / "certs/ca.crt"), "-CAkey", str(self.folder / "certs/ca.key")]
        _openssl(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            request,
            "-subj",
            f"/O=system:masters/CN={name}",
        )
        _openssl("x509", "-req", "-in", request, *authority, "-CAcreateserial", "-days", "1", "-out", made)
        return {
            "client-certificate-data": base64.b64encode(made.read_bytes()).decode(),
            "client-key-data": base64.b64encode(key.read_bytes()).decode(),
        }

    def answers(self) -> bool:
        """Whether the API server is ready."""
        try:
            with self.client() as client:
                return client.get("/readyz").status_code == 200
        except (httpx2.HTTPError, OSError):
            return False

    def start_api(self) -> None:
        """Start the API server, where it was, and wait until it answers."""
        self.start("kube-apiserver", api_options(self.folder, self.etcd, self.port))
        wait_for("the API server is ready", lambda: self.alive("kube-apiserver") and self.answers())

    def stop_api(self) -> None:
        """An outage of the API server."""
        stop(self.processes.pop("kube-apiserver"), signal.SIGKILL)

    def start(self, program: str, options: Sequence[str]) -> None:
        """Start a daemon that writes its log into the folder."""
        path = (
            self.binaries / program if (self.binaries / program).exists() else Path(need(program, f"{program}-server"))
        )
        with (self.folder / f"{program}.log").open("ab") as log:
            self.processes[program] = subprocess.Popen(
                bound([path, *options]), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def alive(self, program: str) -> bool:
        """True; a daemon that ended is an error with the end of its log.

        Raises:
            RuntimeError: it ended.
        """
        if self.processes[program].poll() is not None:
            raise RuntimeError(f"{program} ended: {(self.folder / f'{program}.log').read_text()[-1000:]}")
        return True


@contextmanager
def kubernetes(nodes: int = 4) -> Iterator[Kubernetes]:
    """A control plane whose nodes gpu001, gpu002 ... are ready."""
    binaries = _binaries()
    need("etcd", "etcd-server")
    need("kubectl", "kubernetes-client")
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        client_port, peer_port, port = free_port(), free_port(), free_port()
        cluster = Kubernetes(folder, binaries, port, f"http://127.0.0.1:{client_port}", secrets.token_hex(16))
        stack.callback(_stop_all, cluster)
        _make_keys(cluster)
        cluster.start("etcd", etcd_options(cluster.folder / "etcd", cluster.etcd, f"http://127.0.0.1:{peer_port}"))
        cluster.start_api()
        cluster.kubeconfig(cluster.admin, {"token": cluster.token})
        for program, more in CONTROLLERS.items():
            common = [
                "--leader-elect=false",
                "--port=0",
                "--authentication-skip-lookup=true",
                "--bind-address=127.0.0.1",
            ]
            places = [f"--kubeconfig={cluster.admin}", f"--secure-port={free_port()}", f"--cert-dir={folder / 'certs'}"]
            cluster.start(program, [*common, *places, *more])
        cluster.kubectl("apply", "-f", str(RBAC))
        names = [f"gpu{i:03d}" for i in range(1, nodes + 1)]
        cluster.kubelets = stack.enter_context(Kubelets(cluster.client(), names))
        wait_for("the nodes are ready", lambda: _are_schedulable(cluster, names))
        yield cluster


def _make_keys(cluster: Kubernetes) -> None:
    """The key that signs service accounts' tokens, an authority for clients' certificates, the first user's token."""
    certs = cluster.folder / "certs"
    certs.mkdir()
    _openssl("genrsa", "-out", certs / "sa.key", "2048")
    options = ["-nodes", "-days", "1", "-subj", "/CN=clients"]
    _openssl("req", "-x509", "-newkey", "rsa:2048", *options, "-keyout", certs / "ca.key", "-out", certs / "ca.crt")
    (cluster.folder / "tokens.csv").write_text(f'{cluster.token},admin,admin,"system:masters"\n')


def _openssl(*words: str | Path) -> None:
    subprocess.run([need("openssl", "openssl"), *words], check=True, capture_output=True)


def _binaries() -> Path:
    """The folder of the newest programs that `.ci/kubernetes` has built; without them the test ends."""
    built = [path.parent for path in _CACHE.glob("[0-9]*/kube-scheduler")]
    if built:
        return max(built, key=lambda path: [int(part) for part in path.name.split(".")])
    if (_CACHE / "why-not").exists():  # no fault of the environment: it cannot be had there
        pytest.skip(f"no Kubernetes was built: {(_CACHE / 'why-not').read_text().strip()}")
    missing(f"no Kubernetes in {_CACHE}: .ci/kubernetes builds it")
    raise AssertionError  # missing() has ended the test


def _are_schedulable(cluster: Kubernetes, names: Sequence[str]) -> bool:
    """Whether the controller has seen that the nodes are ready."""
    nodes = {node["metadata"]["name"]: node["spec"] for node in cluster.get("/api/v1/nodes")["items"]}
    return all(name in nodes and not nodes[name].get("taints") for name in names)


def _trust(authority: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority))


def _stop_all(cluster: Kubernetes) -> None:
    for process in reversed(cluster.processes.values()):
        stop(process, signal.SIGKILL)  # nothing is to be kept, and a shutdown in order waits for every watch

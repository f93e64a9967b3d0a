"""The site of docs/install-kubernetes.md: a person's machine beside a real API server, with nothing of ours yet.

with cluster_site(folder, server, cluster) as site:
    site.walk()
"""

import secrets
import shutil
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
from helm.pods import Pod
from installed_site import InstalledSite
from real.foreshock import free_port
from real.helm import helm_program
from real.kubernetes import RBAC
from real.kubernetes import Kubernetes as Cluster
from real.nats import Nats
from real.patience import patience
from real.postgres import Postgres
from real.programs import need, wait_for

EXEC = "exec -n foreshock deploy/foreshock --"
FAULT = "7. The first fault"


class ClusterSite(InstalledSite):
    """A person's machine beside a cluster: real kubectl and helm, and what `kubectl exec` needs a kubelet for."""

    def __init__(self, folder: Path, server: Postgres, cluster: Cluster, nodes: Sequence[str]) -> None:
        super().__init__(folder, server, "install-kubernetes.md")
        self.cluster, self.pods, self.nodes = cluster, dict[str, Pod](), list(nodes)
        self.port, self.node_port, self.dashboard_port = free_port(), free_port(), free_port()
        self.kernel_log = folder / "kern.log"
        self.kernel_log.write_text("")
        self._program("kubectl", f'exec {need("kubectl", "kubernetes-client")} "$@"')
        # The shared cluster has the namespace and the rights of other tests already.
        self._program("helm", f'[ "$1" != install ] || set -- "$@" --take-ownership; exec {helm_program()} "$@"')
        self.here |= {
            "@postgres.example.org/foreshock": f"@/foreshock?host={server.folder}",
            "DNS:foreshock.foreshock.svc": "DNS:localhost",
            "> /dev/kmsg": f">> {self.kernel_log}",
            "'<3>NVRM": "'NVRM",
            "kubectl create namespace": "kubectl get namespace",
            "foreshock.foreshock.svc:10870": f"localhost:{self.port}",
            "alertmanager.monitoring.svc:9093": self.start_alertmanager(),
            "/etc/prometheus": str(folder / "home/prometheus"),
            "-n monitoring": "-n foreshock",  # the one that is cleared at the end
            "gpu001": nodes[0],
            "gpu[001-064]": nodes[0],
        }
        token, home = secrets.token_hex(24), folder / "home"
        (home / "nats.creds").write_text(token)
        keys = ["--tls", "--tlscert", str(home / "tls.crt"), "--tlskey", str(home / "tls.key")]
        self.nats = Nats(folder, "--auth", token, *keys)
        self.in_pod = {
            "foreshock.foreshock.svc:10870": f"localhost:{self.port}",
            "journal:/var/log/journal": f"file:{self.kernel_log}:kernel",
            "alertmanager.monitoring.svc:9093": self.alerts.removeprefix("http://"),
            "nats.example.org:4222": f"localhost:{self.nats.port}",
        }

    def before(self, block: str) -> str:
        """With the id of the hint that waits for a person; once the node is cordoned; once NATS is there."""
        if "approve ID" in block:
            return block.replace("ID", self.proposed()[0])
        if "kubectl get node" in block:
            wait_for("the node is cordoned", lambda: "unschedulable" in self.cluster.node(self.nodes[0])["spec"])
            self.moment("out")
        if "nats-ca.crt" in block:
            shutil.copy(self.folder / "home/tls.crt", self.folder / "home/nats-ca.crt")
            self.parts.callback(self.nats.end)
            self.nats.start()
        return block

    def after(self, block: str) -> None:
        """Start what a kubelet would, and wait as a person does."""
        if "helm install" in block:
            self.start_server()
            self.start_dashboard()
        if "generic foreshock-sidecar" in block and "nats" not in block:
            self.start_sidecar(self.nodes[0], self.folder)
        if "helm upgrade" in block:
            self.start_consumer()
            self.pods.pop("sidecar").end()
            self.start_sidecar(self.nodes[1], self.folder / "behind-nats")
        if "prometheus.yml" in block:
            self.start_prometheus(self.folder / "home/prometheus")
        if "Xid" in block:
            self.moment("fault")
            wait_for("a hint waits for a person", lambda: self.proposed() != [])
            self.moment("shown")

    def fault_behind_nats(self) -> None:
        """The page's line in the kernel log of the other node; until a hint waits for a person."""
        self.run(self.blocks(FAULT)[0])
        wait_for("a hint waits for what came through NATS", lambda: self.proposed() != [])

    def _program(self, name: str, script: str) -> None:
        text = f"#!/bin/sh\nexport KUBECONFIG={self.cluster.admin}\n{script}\n"
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    def start_server(self) -> None:
        """What the Deployment would start, with the rights of its account; `kubectl exec` leads there."""
        pod = self.pods["server"] = Pod(self.cluster, self.folder, "deployments/foreshock", self.in_pod)
        pod.start("--port", str(self.port), kubeconfig=self.cluster.agent(self.folder))
        self._ready(pod, "readinessProbe", self.port)
        self._ready(pod, "livenessProbe", self.port)
        told = " ".join(f"{name}='{value}'" for name, value in pod.environment(pod.container).items())
        inside = f'case "$*" in "{EXEC}"*) shift 5; exec env {told} "$@";; esac'
        self._program("kubectl", f'{inside}; exec {need("kubectl", "kubernetes-client")} "$@"')

    def start_consumer(self) -> None:
        """What its Deployment would start."""
        pod = self.pods["consumer"] = Pod(self.cluster, self.folder, "deployments/foreshock-consumer", self.in_pod)
        port = free_port()
        pod.start("--port", str(port), "--listen", "127.0.0.1")
        self._ready(pod, "livenessProbe", port)

    def start_sidecar(self, node: str, folder: Path) -> None:
        """What the DaemonSet would start on a node; in a folder of its own."""
        pod = self.pods["sidecar"] = Pod(self.cluster, folder, "daemonsets/foreshock-sidecar", self.in_pod)
        pod.start("--port", str(self.node_port), "--listen", "127.0.0.1", node=node)
        self._ready(pod, "readinessProbe", self.node_port)
        self._ready(pod, "livenessProbe", self.node_port)

    def start_dashboard(self) -> None:
        """What its Deployment would start, with Secret and authority."""
        pod = self.pods["dashboard"] = Pod(self.cluster, self.folder, "deployments/foreshock-dashboard", self.in_pod)
        pod.start("--port", str(self.dashboard_port))

    def dashboard_answers(self) -> None:
        """Whoever reads the page opens it when he comes to it."""
        self._answers(self.pods["dashboard"], f"http://localhost:{self.dashboard_port}/_stcore/health")

    def proposed(self) -> list[str]:
        """The ids of hints that wait for a person, as the dashboard asks for them."""
        token = (self.folder / "home/dashboard.token").read_text()
        told = {"authorization": f"Bearer {token}"}
        url = f"https://localhost:{self.port}/api/v1/hints"
        answer = httpx2.get(url, headers=told, verify=self._trust(), trust_env=False, timeout=patience(20))
        return [str(hint["id"]) for hint in answer.json()["items"] if hint["state"] == "proposed"]

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "home/tls.crt"))

    def _ready(self, pod: Pod, probe: str, port: int) -> None:
        self._answers(pod, pod.probe(probe, port))

    def _answers(self, pod: Pod, url: str) -> None:
        trust = self._trust()

        def good() -> bool:
            assert pod.process is not None
            assert pod.process.poll() is None, pod.log.read_text()[-2000:]
            try:
                return httpx2.get(url, verify=trust, trust_env=False).status_code == 200
            except httpx2.HTTPError:
                return False

        wait_for(f"{url} answers", good)

    def end(self) -> None:
        """Stop what runs, and leave the shared cluster as it was."""
        for pod in self.pods.values():
            pod.tell()
        for pod in self.pods.values():
            pod.end()
        super().end()


@contextmanager
def cluster_site(folder: Path, server: Postgres, cluster: Cluster) -> Iterator[ClusterSite]:
    """With two nodes: one has the first fault, the other one behind NATS. The shared cluster is left as it was."""
    with cluster.nodes(2) as nodes:
        found = ClusterSite(folder, server, cluster, nodes)
        try:
            yield found
        finally:
            found.end()
            names = "secret/foreshock-database secret/foreshock-tls secret/foreshock-dashboard secret/foreshock-sidecar"
            names += " secret/foreshock-nats secret/foreshock-prometheus configmap/foreshock-ca lease/foreshock"
            found.run(f"""helm uninstall foreshock -n foreshock --ignore-not-found
                kubectl delete --ignore-not-found -n foreshock {names}
                kubectl apply -f {RBAC}\n""")
            found.postgres("dropdb", "--if-exists", "--force", "foreshock")
            found.postgres("dropuser", "--if-exists", "foreshock")

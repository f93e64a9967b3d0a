"""docs/install-kubernetes.md, command by command: from nothing to a node that a real API server has cordoned."""

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from helm.pods import Pod
from installed_site import InstalledSite
from real.foreshock import free_port
from real.helm import helm_program
from real.kubernetes import RBAC
from real.kubernetes import Kubernetes as Cluster
from real.patience import patience
from real.postgres import Postgres
from real.programs import need, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]
EXEC = "exec -n foreshock deploy/foreshock --"


class ClusterSite(InstalledSite):
    """A person's machine beside a cluster: real kubectl and helm, and what `kubectl exec` needs a kubelet for."""

    def __init__(self, folder: Path, server: Postgres, cluster: Cluster) -> None:
        super().__init__(folder, server, "install-kubernetes.md")
        self.cluster, self.pods = cluster, dict[str, Pod]()
        self.port, self.node_port, self.dashboard_port = free_port(), free_port(), free_port()
        self.kernel_log = folder / "kern.log"
        self.kernel_log.write_text("")
        self._program("kubectl", f'exec {need("kubectl", "kubernetes-client")} "$@"')
        # The shared cluster has the namespace and the rights of other tests already.
        self._program("helm", f'[ "$1" != install ] || set -- "$@" --take-ownership; exec {helm_program()} "$@"')
        self.here |= {
            "@postgres.example.org/foreshock": f"@/foreshock?host={server.folder}",
            "DNS:foreshock.foreshock.svc": "DNS:localhost",
            "/dev/kmsg": str(self.kernel_log),
            "'<3>NVRM": "'NVRM",
            "kubectl create namespace": "kubectl get namespace",
        }
        self.in_pod = {
            "foreshock.foreshock.svc:10870": f"localhost:{self.port}",
            "journal:/var/log/journal": f"file:{self.kernel_log}:kernel",
        }

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

    def start_sidecar(self, node: str) -> None:
        """What the DaemonSet would start on a node."""
        pod = self.pods["sidecar"] = Pod(self.cluster, self.folder, "daemonsets/foreshock-sidecar", self.in_pod)
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


@pytest.fixture
def site(tmp_path: Path, postgres_server: Postgres, kubernetes_cluster: Cluster) -> Iterator[ClusterSite]:
    """A person's machine, beside a cluster on which nothing of ours runs yet."""
    found = ClusterSite(tmp_path, postgres_server, kubernetes_cluster)
    try:
        yield found
    finally:
        found.end()
        names = "secret/foreshock-database secret/foreshock-tls secret/foreshock-dashboard secret/foreshock-sidecar"
        found.run(f"""helm uninstall foreshock -n foreshock --ignore-not-found
            kubectl delete --ignore-not-found -n foreshock {names} configmap/foreshock-ca lease/foreshock
            kubectl apply -f {RBAC}\n""")
        found.postgres("dropdb", "--if-exists", "--force", "foreshock")
        found.postgres("dropuser", "--if-exists", "foreshock")


def test_the_page_leads_from_nothing_to_a_cordoned_node(site: ClusterSite, kubernetes_cluster: Cluster) -> None:
    """In its order; each command as it stands there."""
    with kubernetes_cluster.nodes(1) as (node,):
        site.here |= {"gpu001": node, "gpu[001-064]": node}
        said: dict[str, list[str]] = {}
        for heading in site.headings():
            for block in site.blocks(heading):
                if "approve ID" in block:
                    block = block.replace("ID", site.proposed()[0])
                if "kubectl get node" in block:
                    wait_for("the node is cordoned", lambda: "unschedulable" in kubernetes_cluster.node(node)["spec"])
                said.setdefault(heading, []).append(site.run(block))
                if "helm install" in block:
                    site.start_server()
                    site.start_dashboard()
                if "foreshock-sidecar" in block:
                    site.start_sidecar(node)
                if "Xid" in block:
                    wait_for("a hint waits for a person", lambda: site.proposed() != [])
        site.dashboard_answers()
        assert re.match(r"true foreshock: xid 79|true xid 79", said["7. The first fault"][-1]), said
        assert node in said["7. The first fault"][1]

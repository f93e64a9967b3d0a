"""The Helm chart in a real API server: every rendering is taken, with no field that it does not know."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from helm.chart_values import RENDERINGS
from real.helm import rendered
from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]
TEXT = {"type": "string"}
SELECTOR = {"type": "object", "properties": {"matchLabels": {"type": "object", "additionalProperties": TEXT}}}
# The Prometheus operator itself is not at hand: of its definitions, the fields that the chart sets, by its API page.
ENDPOINT = {"port": TEXT, "path": TEXT, "interval": TEXT}
TLS = {
    "serverName": TEXT,
    "ca": {"type": "object", "properties": {"configMap": {"type": "object", "properties": {"name": TEXT, "key": TEXT}}}},
}
RELABEL = {"sourceLabels": {"type": "array", "items": TEXT}, "targetLabel": TEXT}
MONITORS = {
    "ServiceMonitor": ("endpoints", {**ENDPOINT, "scheme": TEXT, "tlsConfig": {"type": "object", "properties": TLS}}),
    "PodMonitor": (
        "podMetricsEndpoints",
        {**ENDPOINT, "relabelings": {"type": "array", "items": {"type": "object", "properties": RELABEL}}},
    ),
}


def definition(kind: str) -> dict[str, Any]:
    """A monitor's definition."""
    part, fields = MONITORS[kind]
    spec = {"selector": SELECTOR, part: {"type": "array", "items": {"type": "object", "properties": fields}}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.monitoring.coreos.com"},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module")
def operated_cluster(kubernetes_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the monitors' definitions."""
    definitions = [definition(kind) for kind in MONITORS]
    kubernetes_cluster.apply(*definitions)
    names = [f"crd/{one['metadata']['name']}" for one in definitions]
    kubernetes_cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    yield kubernetes_cluster
    kubernetes_cluster.kubectl("delete", "--wait=false", *names)


@pytest.mark.parametrize("name", RENDERINGS)
def test_the_api_server_takes_each_rendering(operated_cluster: Cluster, name: str) -> None:
    """First to try, then for real: controllers make the pods, a sidecar for each node."""
    cluster, release = operated_cluster, f"site-{list(RENDERINGS).index(name)}"
    version = json.loads(cluster.kubectl("version", "--output=json"))["serverVersion"]["gitVersion"]
    values = {**RENDERINGS[name], "namespace": {"create": False}}
    text = rendered(values, "--kube-version", version, release=release)
    wanted = [one for one in yaml.safe_load_all(text) if one]
    cluster.kubectl("create", "namespace", release)
    try:
        for words in (["--dry-run=server"], []):
            said = cluster.kubectl("apply", "--validate=true", *words, "-f", "-", text=text)
            assert len([line for line in said.splitlines() if " created" in line]) == len(wanted), said
        wait_for("the controllers have made the pods", lambda: _made(cluster, release, wanted))
    finally:
        cluster.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", text=text)
        cluster.kubectl("delete", "--wait=false", "namespace", release)


def _made(cluster: Cluster, release: str, wanted: list[dict[str, Any]]) -> bool:
    """Whether each Deployment has its pods, and the DaemonSet one on each node that it is for."""
    made = cluster.get(f"/api/v1/namespaces/{release}/pods")["items"]
    nodes = len(cluster.get("/api/v1/nodes")["items"])
    for one in wanted:
        if one["kind"] in ("Deployment", "DaemonSet"):
            part = one["metadata"]["labels"]["app.kubernetes.io/component"]
            labels = [pod["metadata"]["labels"] for pod in made]
            count = sum(found["app.kubernetes.io/component"] == part for found in labels)
            narrow = one["spec"]["template"]["spec"].get("nodeSelector")
            few = one["spec"]["replicas"] if one["kind"] == "Deployment" else 0 if narrow else nodes
            if count < few:
                return False
    return True

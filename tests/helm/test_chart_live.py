"""The Helm chart in a real API server: each way to have it is taken, with no field that it does not know."""

import json
from typing import Any

import pytest
import yaml
from helm.chart_values import APPLIED, RENDERINGS
from real.helm import rendered
from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.mark.parametrize("name", APPLIED)
def test_the_api_server_takes_each_rendering(kubernetes_cluster: Cluster, name: str) -> None:
    """First to try, then for real: controllers put a sidecar on each node.

    Without the Prometheus operator's objects: test_chart.py holds them against the fields of its API.
    """
    cluster, release = kubernetes_cluster, f"site-{list(RENDERINGS).index(name)}"
    version = json.loads(cluster.kubectl("version", "--output=json"))["serverVersion"]["gitVersion"]
    values = {**RENDERINGS[name], "monitor": {"enabled": False}}
    text = rendered(values, "--kube-version", version, release=release)
    wanted = [one for one in yaml.safe_load_all(text) if one]
    cluster.kubectl("create", "namespace", release)
    try:
        for words in (["--dry-run=server"], []):
            said = cluster.kubectl("apply", "--validate=true", *words, "-f", "-", text=text)
            assert len([line for line in said.splitlines() if " created" in line]) == len(wanted), said
        wait_for("the controllers have made the sidecars", lambda: _made(cluster, release, wanted))
    finally:
        cluster.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", text=text)
        cluster.kubectl("delete", "--wait=false", "namespace", release)


def _made(cluster: Cluster, release: str, wanted: list[dict[str, Any]]) -> bool:
    """Whether a DaemonSet without a selector of nodes has a pod on each."""
    made = cluster.get(f"/api/v1/namespaces/{release}/pods")["items"]
    hosts = {pod["spec"].get("nodeName") for pod in made}
    nodes = {node["metadata"]["name"] for node in cluster.get("/api/v1/nodes")["items"]}
    anywhere = [
        one for one in wanted if one["kind"] == "DaemonSet" and not one["spec"]["template"]["spec"].get("nodeSelector")
    ]
    return not anywhere or nodes <= hosts

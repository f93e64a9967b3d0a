"""The manifests of deploy/kubernetes, as a real API server takes them."""

import pytest
from real.kubernetes import RBAC
from real.kubernetes import Kubernetes as Cluster

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.mark.parametrize("name", sorted(path.name for path in RBAC.parent.glob("*.yaml")))
def test_the_api_server_takes_each_manifest(kubernetes_cluster: Cluster, name: str) -> None:
    """All of it, with no field that it does not know."""
    said = kubernetes_cluster.kubectl("apply", "--dry-run=server", "--validate=true", "-f", str(RBAC.with_name(name)))
    assert said.count("(server dry run)") >= 1

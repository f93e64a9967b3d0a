"""docs/install-kubernetes.md, command by command: from nothing to a node that a real API server has cordoned."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_site import FAULT, ClusterSite, cluster_site
from real.kubernetes import Kubernetes as Cluster
from real.postgres import Postgres
from real.programs import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


@pytest.fixture
def site(tmp_path: Path, postgres_server: Postgres, kubernetes_cluster: Cluster) -> Iterator[ClusterSite]:
    """A person's machine, beside a cluster on which nothing of ours runs yet."""
    with cluster_site(tmp_path, postgres_server, kubernetes_cluster) as found:
        yield found


def test_the_page_leads_from_nothing_to_a_cordoned_node(site: ClusterSite) -> None:
    """In its order; each command as it stands there. Prometheus, Alertmanager and NATS have their part in it."""
    site.walk()
    site.dashboard_answers()
    assert re.match(r"true foreshock: xid 79|true xid 79", site.said[FAULT][-1]), site.said
    assert site.nodes[0] in site.said[FAULT][1]
    wait_for("Alertmanager holds the verdict", lambda: site.nodes[0] in site.alerted())
    site.fault_behind_nats()

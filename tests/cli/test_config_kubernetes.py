"""A configuration that names a Kubernetes cluster."""

from pathlib import Path

import pytest
import yaml

from cli.config.server import load_settings
from cli.console.errors import Failure
from schedulers.kubernetes.access import KubernetesSettings

WHOLE = """
schedulers:
  - kind: kubernetes
    name: prod
    kubeconfig: /etc/foreshock/kubeconfig
    namespace: ops
    identity: server-1
    domain: ops.example.com
    timeout_s: 5
    requests_per_s: 50
    at_once: 4
    lease_s: 20
    dry_run: true
    evict: true
    keep_namespaces: [kube-system, monitoring]
    annotate_pods: true
"""


def test_every_setting_is_taken(tmp_path: Path) -> None:
    """As docs/kubernetes.md names them."""
    (tmp_path / "c.yaml").write_text(WHOLE)
    (settings,) = load_settings(tmp_path / "c.yaml", {}).actuators
    assert settings == KubernetesSettings(
        "prod",
        kubeconfig="/etc/foreshock/kubeconfig",
        namespace="ops",
        identity="server-1",
        domain="ops.example.com",
        timeout_s=5.0,
        requests_per_s=50.0,
        at_once=4,
        lease_s=20.0,
        dry_run=True,
        evict=True,
        keep_namespaces=("kube-system", "monitoring"),
        annotate_pods=True,
    )


def test_a_setting_that_cannot_work_names_its_place(tmp_path: Path) -> None:
    """With the remedy."""
    (tmp_path / "c.yaml").write_text("schedulers:\n  - {kind: kubernetes, name: prod, domain: node.kubernetes.io}\n")
    with pytest.raises(Failure, match=r"schedulers\[0\]: domain: node.kubernetes.io is Kubernetes' own"):
        load_settings(tmp_path / "c.yaml", {})


def test_the_manifest_s_configuration_is_one(tmp_path: Path) -> None:
    """What deploy/kubernetes/server.yaml mounts is read by the server, but for the token, which the site puts there."""
    manifest = Path(__file__).parents[2] / "deploy/kubernetes/server.yaml"
    config = next(iter(yaml.safe_load_all(manifest.read_text(encoding="utf-8"))))["data"]["foreshock.yaml"]
    (tmp_path / "c.yaml").write_text(config)
    with pytest.raises(Failure, match="sha256: expected 64 hex digits"):
        load_settings(tmp_path / "c.yaml", {})
    (tmp_path / "c.yaml").write_text(config.replace("PUT-THE-SHA-256-OF-YOUR-OWN-TOKEN-HERE", "a1" * 32))
    settings = load_settings(tmp_path / "c.yaml", {})
    assert settings.actuators == (KubernetesSettings("here", identity="foreshock", dry_run=True),)
    assert settings.mode == "shadow"

"""The command lines of a control plane's daemons (tests/real/kubernetes.py)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

# Grace is long: a loaded machine makes no node lost. Few controllers: what nodes, disruption budgets and pods need.
CONTROLLERS: Mapping[str, Sequence[str]] = {
    "kube-controller-manager": [
        "--controllers=nodelifecycle,disruption,daemonset,replicaset,job",
        "--node-monitor-grace-period=600s",
        "--use-service-account-credentials=false",
    ],
    "kube-scheduler": [],
}


def etcd_options(folder: Path, url: str, peer: str) -> list[str]:
    """Of etcd, which need not survive the test."""
    return [
        f"--data-dir={folder}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def api_options(folder: Path, etcd: str, port: int) -> list[str]:
    """Of kube-apiserver: users by token, certificate and service account, and their roles."""
    certs = folder / "certs"
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={certs}",
        f"--client-ca-file={certs / 'ca.crt'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--anonymous-auth=false",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.test",
        f"--service-account-key-file={certs / 'sa.key'}",
        f"--service-account-signing-key-file={certs / 'sa.key'}",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    ]

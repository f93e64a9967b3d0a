"""The plain manifests of deploy/kubernetes: what helm makes of the chart with the values below.

PYTHONPATH=tests python tests/chart.py     writes deploy/kubernetes anew
"""

from pathlib import Path
from typing import Any

from real.helm import rendered

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
VALUES: dict[str, Any] = {"namespace": {"create": True}, "rbac": {"evict": True, "jobs": True}}
NAMES = ("rbac", "rbac-evict", "rbac-jobs", "server", "sidecar", "dashboard", "network-policy")
_HEAD = "# Made by `make chart` from deploy/helm/foreshock: a release `foreshock` in the namespace `foreshock`.\n"


def manifests() -> dict[str, str]:
    """Each file's text by its name."""
    return {
        f"{name}.yaml": _HEAD + rendered(VALUES, "--show-only", f"templates/{name}.yaml").lstrip("-\n")
        for name in NAMES
    }


if __name__ == "__main__":
    for name, text in manifests().items():
        (FOLDER / name).write_text(text, encoding="utf-8")

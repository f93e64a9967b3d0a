"""Helm, as `.ci/helm` has it: the chart rendered by it, checked by it, installed by it.

print(rendered({"server": {"replicas": 2}}))
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience
from real.programs import missing

CHART = Path(__file__).parents[2] / "deploy/helm/foreshock"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foreshock/helm"


class HelmError(RuntimeError):
    """Helm refuses; with what it says."""


def helm_program() -> Path:
    """The newest one that `.ci/helm` has fetched; without it the test ends."""
    found = [path for path in _CACHE.glob("[0-9]*/helm") if os.access(path, os.X_OK)]
    if found:
        return max(found, key=lambda path: [int(part) for part in path.parent.name.split(".")])
    if (_CACHE / "why-not").exists():  # no fault of the environment: it cannot be had there
        pytest.skip(f"no helm: {(_CACHE / 'why-not').read_text().strip()}")
    missing(f"no helm in {_CACHE}: .ci/helm fetches it")
    raise AssertionError  # missing() has ended the test


def helm(*words: str | Path, kubeconfig: Path | None = None) -> str:
    """What helm prints.

    Raises:
        HelmError: it refuses.
    """
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        places = {f"HELM_{name}_HOME": home for name in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **places, "KUBECONFIG": str(kubeconfig or "/dev/null")}
        command = [helm_program(), *words]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=patience(60)
        )
    if done.returncode != 0:
        raise HelmError(f"helm {' '.join(map(str, words))}: {done.stderr.strip()}{done.stdout.strip()}")
    return done.stdout


def rendered(values: Mapping[str, Any], *options: str, release: str = "foreshock") -> str:
    """The chart's manifests for a release in a namespace of the same name."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(dict(values), file)
        file.flush()
        return helm("template", release, CHART, "--namespace", release, "--values", file.name, *options)

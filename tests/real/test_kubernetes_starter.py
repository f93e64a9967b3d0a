"""The starter of Kubernetes and the script that builds it: what is said where it is missing, what is left behind."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from real import kubernetes as starter
from real.kubernetes import kubernetes
from real.patience import patience

SCRIPT = Path(__file__).parents[2] / ".ci/kubernetes"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def build(cache: Path, path: Path | None = None) -> str:
    """What the script prints; it never fails."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    if path is not None:
        environment["PATH"] = str(path)
    done = subprocess.run(
        ["/bin/sh", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=patience(60)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def built(cache: Path, version: str) -> Path:
    """A folder as the script leaves it, of programs that do nothing."""
    folder = cache / "foreshock/kubernetes" / version
    folder.mkdir(parents=True)
    for program in PROGRAMS:
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    return folder


def test_what_is_built_is_not_built_again(tmp_path: Path) -> None:
    """And nothing is said of it."""
    built(tmp_path, "1.20.2")
    assert build(tmp_path) == ""


def test_where_it_cannot_be_built_it_is_said_why(tmp_path: Path) -> None:
    """Half of it is not it; without apt-get there is no more to be had."""
    (built(tmp_path, "1.20.2") / "kube-scheduler").unlink()
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("mkdir", "rm", "flock", "id"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    assert build(tmp_path, tools) == "kubernetes: not built: there is no apt-get here; its tests are skipped\n"
    assert (tmp_path / "foreshock/kubernetes/why-not").read_text() == "there is no apt-get here\n"


def test_without_it_tests_are_skipped_and_in_ci_they_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a machine that cannot have it."""
    monkeypatch.setattr(starter, "_CACHE", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"\.ci/kubernetes builds it"):
        starter._binaries()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"\.ci/kubernetes builds it"):
        starter._binaries()
    (tmp_path / "why-not").write_text("it takes root\n")
    with pytest.raises(pytest.skip.Exception, match="it takes root"):
        starter._binaries()


def test_of_several_versions_the_newest_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, not by letter."""
    for version in ("1.9.1", "1.20.2"):
        built(tmp_path, version)
    monkeypatch.setattr(starter, "_CACHE", tmp_path / "foreshock/kubernetes")
    assert starter._binaries().name == "1.20.2"


@pytest.mark.integration
@pytest.mark.xdist_group("kubernetes")
def test_a_stopped_cluster_leaves_nothing_behind() -> None:
    """Neither its folder nor its processes; and while it runs its nodes are ready."""
    with kubernetes(nodes=1) as cluster:
        processes = list(cluster.processes.values())
        assert len(processes) == 4
        assert "gpu001   Ready" in cluster.kubectl("get", "nodes")
        folder, port = cluster.folder, cluster.port
    assert not folder.exists()
    assert all(process.poll() is not None for process in processes)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0

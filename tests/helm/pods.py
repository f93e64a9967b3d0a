"""What kubelets would start: the containers of a workload as the API server has it, as programs of this machine.

    pod = Pod(cluster, tmp_path, "deployments", "foreshock")
    pod.start()

Secrets and ConfigMaps are written into folders that take the place of the mounts; arguments, environment and
configuration name those folders. Init containers that only hand over a folder are left out.
"""

import base64
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from real.kubernetes import Kubernetes
from real.patience import patience
from real.programs import bound, stop

NAMESPACE = "foreshock"
_PROGRAM = Path(sys.executable).with_name("foreshock")


class Pod:
    """One pod of a workload; `here` is what stands for the names of a cluster on this machine."""

    def __init__(self, cluster: Kubernetes, folder: Path, workload: str, here: Mapping[str, str]) -> None:
        """A workload such as `deployments/foreshock`."""
        self._cluster, self._folder = cluster, folder / workload.replace("/", "-")
        found = cluster.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/{workload}")
        self.spec: dict[str, Any] = found["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self._here = dict(here)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / f"{self.container['name']}.log"
        self._mount()

    def _mount(self) -> None:
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        mounts = sorted(self.container["volumeMounts"], key=lambda mount: str(mount["mountPath"]), reverse=True)
        for mount in mounts:
            self._here[mount["mountPath"]] = str(self._folder / mount["name"])
        for mount in mounts:
            place = self._folder / mount["name"]
            place.mkdir(parents=True)
            for name, data in self._contents(volumes[mount["name"]]).items():
                (place / name).write_bytes(data)
                (place / name).chmod(0o440)

    def _contents(self, volume: Mapping[str, Any]) -> dict[str, bytes]:
        """The files of a volume."""
        place = f"/api/v1/namespaces/{NAMESPACE}"
        if "secret" in volume:
            data = self._cluster.get(f"{place}/secrets/{volume['secret']['secretName']}")["data"]
            return {name: base64.b64decode(text) for name, text in data.items()}
        if "configMap" in volume:
            data = self._cluster.get(f"{place}/configmaps/{volume['configMap']['name']}")["data"]
            return {name: self.placed(text).encode() for name, text in data.items()}
        return {}

    def placed(self, text: str) -> str:
        """A text of the cluster as it holds on this machine; of two names the longer."""
        known = "|".join(map(re.escape, sorted(self._here, key=len, reverse=True)))
        return re.sub(known, lambda one: self._here[one[0]], text)

    def environment(self, container: Mapping[str, Any], node: str = "") -> dict[str, str]:
        """What a container is told."""
        found = {"PATH": f"{_PROGRAM.parent}:{os.environ['PATH']}"}
        if self.spec.get("enableServiceLinks", True):  # of each Service of the namespace, as a kubelet does
            found["FORESHOCK_PORT"] = "tcp://10.96.0.12:10870"
        fields = {"spec.nodeName": node, "status.hostIP": "127.0.0.1"}
        for one in container.get("env", []):
            path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            found[one["name"]] = self.placed(one["value"]) if path is None else fields[path]
        return found

    def command(self, container: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
        """Its words, with the variables that they name."""
        words = [re.sub(r"\$\((\w+)\)", lambda one: environment[one[1]], word) for word in container["args"]]
        return [str(_PROGRAM), *map(self.placed, words)]

    def start(self, *more: str, node: str = "", kubeconfig: Path | None = None) -> None:
        """Run the init containers to their ends, then the container, with more options for ports that are free."""
        own = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
        for first in self.spec.get("initContainers", []):
            if "command" not in first:
                told = self.environment(first)
                subprocess.run(self.command(first, told), env=told, check=True, timeout=patience(60))
        told = {**self.environment(self.container, node), **own}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                bound([*self.command(self.container, told), *more]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=told,
            )

    def probe(self, name: str, port: int) -> str:
        """The address that a probe asks."""
        asked = self.container[name]["httpGet"]
        return f"{asked.get('scheme', 'HTTP').lower()}://localhost:{port}{asked['path']}"

    def tell(self) -> None:
        """Ask it to end, and do not wait."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Stop it as a kubelet does."""
        if self.process is not None:
            stop(self.process, signal.SIGTERM)

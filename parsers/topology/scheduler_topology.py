"""The topology as schedulers keep it: Slurm's `topology.conf` and `topology.yaml`, the labels of Kubernetes' nodes.

    SwitchName=leaf01 Nodes=gpu[001-032]          -> NodeGroup("gpu001", "switch", "leaf01") ...
    BlockName=rack7 Nodes=gpu[001-018]            -> NodeGroup("gpu001", "nvswitch", "rack7") ...

Slurm's blocks are its word for nodes that share NVLink switches (topology/block). Its switches are a tree in which a
node is once: of nodes with rails it names one leaf, and says less than cables do.
Sources: Slurm's manuals topology.conf(5), topology.yaml(5); the well-known labels of Kubernetes, NVIDIA's GPU feature
discovery and topograph, Amazon EKS and Google's GKE.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import yaml

from parsers.text.parser import OnError, ParseError
from store.records.hostlist import hosts, is_node_name
from store.records.node import NodeGroup

MOST_GROUPS = 1_000_000
_WORD = re.compile(r"(?P<key>\w{1,32})\s*=\s*(?P<value>\S+)", re.ASCII)
_MOST_TEXT = 64 * 1024 * 1024
_MOST_LABEL = 255
# Labels of nodes: the class of the group that each names.
LABELS: Mapping[str, str] = {
    "nvidia.com/gpu.clique": "nvswitch",
    "network.topology.nvidia.com/accelerator": "nvswitch",
    "network.topology.nvidia.com/leaf": "switch",
    "topology.k8s.aws/network-node-layer-3": "switch",
    "topology.kubernetes.io/rack": "rack",
    "topology.rook.io/rack": "rack",
    "cloud.google.com/gce-topology-subblock": "rack",
    "topology.rook.io/pdu": "power",
    "topology.rook.io/row": "cooling",
    "nvidia.com/cuda.driver-version.full": "driver",
}
_DRIVER = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))


def slurm_groups(lines: Iterable[str], on_error: OnError | None = None) -> Iterator[NodeGroup]:
    """What nodes share by a `topology.conf`. A broken line is reported to `on_error` and skipped."""
    whole, began = "", 0
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].rstrip()
        began = began if whole else number
        if text.endswith("\\") and len(whole) < _MOST_TEXT:
            whole += text[:-1] + " "
            continue
        words = {found["key"].lower(): found["value"] for found in _WORD.finditer(whole + text)}
        whole = ""
        if not words:
            continue
        try:
            yield from _of_words(words)
        except ParseError as error:
            if on_error is not None:
                on_error(began, error)


def _of_words(words: Mapping[str, str]) -> Iterator[NodeGroup]:
    for key, kind in (("switchname", "switch"), ("blockname", "nvswitch")):
        if key in words and "nodes" in words:
            yield from _of_nodes(words["nodes"], kind, words[key])
            return
    if "nodes" in words:
        raise ParseError("Nodes= without SwitchName= or BlockName=: write SwitchName=leaf01 Nodes=gpu[001-032]")


def _of_nodes(listed: Any, kind: str, name: Any) -> Iterator[NodeGroup]:
    if not isinstance(listed, str) or not isinstance(name, str) or not 0 < len(name) <= _MOST_LABEL:
        raise ParseError(f"{str(name)[:60]!r} has no nodes: write them as gpu[001-032]")
    nodes = hosts(listed)
    if not nodes:
        raise ParseError(f"{listed[:60]!r} is no list of nodes: write it as gpu[001-032]")
    yield from (NodeGroup(node, kind, name) for node in sorted(nodes))


def slurm_yaml_groups(text: str) -> Iterator[NodeGroup]:
    """What nodes share by a `topology.yaml`.

    Raises:
        ParseError: it is no YAML, or not of this form.
    """
    try:
        found = yaml.safe_load(text[:_MOST_TEXT])
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ParseError(f"it is no YAML: {str(error)[:200]}") from error
    if not isinstance(found, list):
        raise ParseError("it is no list of topologies: begin with `- topology: NAME`")
    for topology in found:
        if isinstance(topology, dict):
            yield from _of_list(topology.get("tree"), "switches", "switch", "switch")
            yield from _of_list(topology.get("block"), "blocks", "block", "nvswitch")


def _of_list(section: Any, name: str, key: str, kind: str) -> Iterator[NodeGroup]:
    entries = section.get(name) if isinstance(section, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("nodes") is not None:
            yield from _of_nodes(entry["nodes"], kind, entry.get(key))


def kubernetes_groups(text: str) -> Iterator[NodeGroup]:
    """What nodes share by the labels of `kubectl get nodes -o json`.

    Raises:
        ParseError: it is no JSON, or no list of nodes.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ParseError(f"it is no JSON: {error}: write `kubectl get nodes -o json`") from error
    items = found.get("items", [found]) if isinstance(found, dict) else found
    if not isinstance(items, list):
        raise ParseError("it has no `items`: write `kubectl get nodes -o json`")
    for item in items:
        metadata = item.get("metadata") if isinstance(item, dict) else None
        if isinstance(metadata, dict) and item.get("kind", "Node") == "Node":
            yield from groups_of_labels(metadata.get("name"), metadata.get("labels"))


def groups_of_labels(node: Any, labels: Any) -> Iterator[NodeGroup]:
    """What a node shares with others by its labels; of two labels of a class the one that comes first in `LABELS`."""
    if not isinstance(node, str) or not is_node_name(node) or not isinstance(labels, dict):
        return
    taken: set[str] = set()
    for label, kind in LABELS.items():
        name = labels.get(label)
        if isinstance(name, str) and 0 < len(name) <= _MOST_LABEL and kind not in taken:
            taken.add(kind)
            yield NodeGroup(node, kind, name)
    parts = [labels.get(label) for label in _DRIVER]
    if "driver" not in taken and all(isinstance(part, str) and part.isdigit() for part in parts[:2]):
        yield NodeGroup(node, "driver", ".".join(str(part) for part in parts if part))

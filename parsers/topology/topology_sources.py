"""Every form in which a topology comes, by name: text in, cables and groups out.

told = read_topology("ibnetdiscover", text)
told = read_topology("lldp", text, node="gpu-017")
"""

from collections.abc import Callable, Mapping

from parsers.formats import iblinkinfo, ibnetdiscover
from parsers.text.parser import OnError, ParseError
from parsers.text.table import nodes
from parsers.topology.lldp import lldp_links
from parsers.topology.scheduler_topology import MOST_GROUPS, kubernetes_groups, slurm_groups, slurm_yaml_groups
from parsers.topology.subnet_list import links as subnet_links
from parsers.topology.ufm_links import ufm_links
from store.records.node import DeviceName, FabricLink, NodeGroup, TopologyReport

_Reader = Callable[[str, str | None, OnError | None], TopologyReport]


def _ibnetdiscover(text: str, _node: str | None, on_error: OnError | None) -> TopologyReport:
    return TopologyReport(tuple(FabricLink(**link) for link in ibnetdiscover.links(text.splitlines(), on_error)))  # type: ignore[arg-type]


def _iblinkinfo(text: str, _node: str | None, _on_error: OnError | None) -> TopologyReport:
    return TopologyReport(tuple(iblinkinfo.links(text.splitlines())))


def _opensm(text: str, _node: str | None, _on_error: OnError | None) -> TopologyReport:
    return TopologyReport(tuple(subnet_links(text.splitlines())))


def _ufm(text: str, _node: str | None, _on_error: OnError | None) -> TopologyReport:
    return TopologyReport(tuple(ufm_links(text)))


def _lldp(text: str, node: str | None, _on_error: OnError | None) -> TopologyReport:
    if node is None:
        raise ParseError("LLDP's text names no node: say whose it is")
    return TopologyReport(tuple(lldp_links(text, node)))


def _slurm(text: str, _node: str | None, on_error: OnError | None) -> TopologyReport:
    return TopologyReport(groups=_bounded(tuple(slurm_groups(text.splitlines(), on_error))))


def _slurm_yaml(text: str, _node: str | None, _on_error: OnError | None) -> TopologyReport:
    return TopologyReport(groups=_bounded(tuple(slurm_yaml_groups(text))))


def _kubernetes(text: str, _node: str | None, _on_error: OnError | None) -> TopologyReport:
    return TopologyReport(groups=_bounded(tuple(kubernetes_groups(text))))


def _nodes(text: str, _node: str | None, on_error: OnError | None) -> TopologyReport:
    """The columns of `nodes.csv` that say what nodes share and are called."""
    groups: list[NodeGroup] = []
    names: list[DeviceName] = []
    for node in nodes(text.splitlines(), on_error):
        groups += (NodeGroup(node.node, kind, name) for kind, name in node.groups)
        own = {"rack": node.rack, "switch": node.leaf, "driver": node.driver, "nvswitch": node.nvlink_domain}
        groups += (NodeGroup(node.node, kind, name) for kind, name in own.items() if name)
        names += (DeviceName(*name) for name in node.names)
    return TopologyReport((), tuple(names), _bounded(tuple(groups)))


def _bounded(groups: tuple[NodeGroup, ...]) -> tuple[NodeGroup, ...]:
    if len(groups) > MOST_GROUPS:
        raise ParseError(f"it names more than {MOST_GROUPS} places of nodes: send it in parts")
    return groups


SOURCES: Mapping[str, _Reader] = {
    "ibnetdiscover": _ibnetdiscover,
    "iblinkinfo": _iblinkinfo,
    "opensm": _opensm,
    "ufm": _ufm,
    "lldp": _lldp,
    "slurm": _slurm,
    "slurm_yaml": _slurm_yaml,
    "kubernetes": _kubernetes,
    "nodes": _nodes,
}


def read_topology(form: str, text: str, node: str | None = None, on_error: OnError | None = None) -> TopologyReport:
    """What a text of a form tells.

    Raises:
        ParseError: it is not of this form.
    """
    return SOURCES[form](text, node, on_error)

"""The plan of a simulated fabric: its switches, hosts, adapters and cables, as ibsim reads it and as tests name them.

    plan = rail_plan(Rails(leafs=16, spines=8, hosts=64, rails=8))
    plan.cables_of("gpu-007/mlx5_3")     # [Cable("leaf07", 7, "gpu-007/mlx5_3", 1)]
    plan.text()                          # what ibsim is started with

A host's adapter `gpu-007/mlx5_3` is on the leaf of its rail; the fabric of few tests has hosts with one adapter each,
which bears the host's own name there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_SWITCH_GUIDS = 0xB83FD20300100000
_ADAPTER_GUIDS = 0xB83FD20300200000


class Cable(NamedTuple):
    """One cable: a switch's port, and the port of a switch or an adapter at its other end."""

    switch: str
    port: int
    peer: str
    peer_port: int

    def name(self) -> str:
        """Both ends, in the order of their names."""
        return "--".join(sorted(self.ends()))

    def ends(self) -> tuple[str, str]:
        """`leaf07/7` and the far end: a switch's port, or the adapter itself."""
        far = self.peer if "/" in self.peer else f"{self.peer}/{self.peer_port}"
        return f"{self.switch}/{self.port}", far


@dataclass(frozen=True, slots=True)
class Rails:
    """How large a fabric is. Each leaf serves one rail, and the leafs of a rail share the hosts out in their order."""

    leafs: int = 16
    spines: int = 8
    hosts: int = 64
    rails: int = 8


@dataclass(slots=True)
class FabricPlan:
    """What stands in a fabric. `guids` are of nodes; an adapter's port has the next number."""

    ports: int = 8
    guids: dict[str, int] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    cables: list[Cable] = field(default_factory=list)

    def add_switch(self, name: str, guid: int) -> None:
        """A switch of the usual description."""
        self.guids[name], self.descriptions[name] = guid, f"MF0;{name}:MQM8700/U1"

    def add_adapter(self, name: str, guid: int, description: str) -> None:
        """An adapter with one port."""
        self.guids[name], self.descriptions[name] = guid, description

    def is_switch(self, name: str) -> bool:
        """Whether a name is a switch's."""
        return self.descriptions[name].startswith("MF0;")

    def identity(self, name: str) -> str:
        """The node's id in ibsim and ibnetdiscover: `S-b83fd20300100000`."""
        return f"{'S' if self.is_switch(name) else 'H'}-{self.guids[name]:016x}"

    def switches(self, prefix: str = "") -> list[str]:
        """The switches whose name begins so, in their order."""
        return [name for name in self.guids if self.is_switch(name) and name.startswith(prefix)]

    def adapters(self, host: str | None = None) -> list[str]:
        """The adapters of a host, or all."""
        names = (name for name in self.guids if not self.is_switch(name))
        return [name for name in names if host is None or name == host or name.startswith(f"{host}/")]

    def hosts(self) -> list[str]:
        """The hosts in their order."""
        return list(dict.fromkeys(name.split("/")[0] for name in self.adapters()))

    def cables_of(self, name: str) -> list[Cable]:
        """The cables of a switch or an adapter."""
        return [cable for cable in self.cables if name in (cable.switch, cable.peer)]

    def text(self) -> str:
        """The fabric in ibnetdiscover's form."""
        links: dict[str, list[str]] = {name: [] for name in self.guids}
        for cable in self.cables:
            links[cable.switch].append(self._row(cable.port, cable.peer, cable.peer_port))
            if self.is_switch(cable.peer):
                links[cable.peer].append(self._row(cable.peer_port, cable.switch, cable.port))
            else:
                own = f"({self.guids[cable.peer] + 1:x})"
                links[cable.peer].append(self._row(cable.peer_port, cable.switch, cable.port, own))
        return "\n".join(line for name, rows in links.items() for line in [*self._head(name), *rows]) + "\n"

    def _head(self, name: str) -> list[str]:
        guid, description = self.guids[name], self.descriptions[name]
        if self.is_switch(name):
            row = f'Switch\t{self.ports} "{self.identity(name)}"\t\t# "{description}" enhanced port 0 lid 0 lmc 0'
            return ["", f"switchguid=0x{guid:x}", row]
        return ["", f"caguid=0x{guid:x}", f'Ca\t1 "{self.identity(name)}"\t\t# "{description}"']

    def _row(self, port: int, peer: str, peer_port: int, guid: str = "") -> str:
        return f'[{port}]{guid}\t"{self.identity(peer)}"[{peer_port}]\t\t# "{self.descriptions[peer]}" lid 0 4xHDR'


def small_plan(leaves: int = 2, hosts_each: int = 2, spines: int = 1) -> FabricPlan:
    """Hosts of one adapter on leaves, leaves on spines: `host01`, `leaf01`, `spine01`.

    A leaf's last ports are its uplinks, spine01's the last; a spine's port is the leaf's number.
    """
    plan = FabricPlan()
    for leaf in range(1, leaves + 1):
        plan.add_switch(f"leaf{leaf:02d}", 0x1000 + leaf)
    for spine in range(1, spines + 1):
        plan.add_switch(f"spine{spine:02d}", 0x2000 + spine)
    for number in range(1, leaves * hosts_each + 1):
        host, leaf, port = f"host{number:02d}", (number - 1) // hosts_each + 1, (number - 1) % hosts_each + 1
        plan.add_adapter(host, 0x100000 + number * 0x10, f"{host} mlx5_0")
        plan.cables.append(Cable(f"leaf{leaf:02d}", port, host, 1))
    for leaf in range(1, leaves + 1):
        for spine in range(1, spines + 1):
            plan.cables.append(Cable(f"leaf{leaf:02d}", 9 - spine, f"spine{spine:02d}", leaf))
    return plan


def rail_plan(size: Rails) -> FabricPlan:
    """A fat tree with rails: adapter r of every host is on one of the leafs of rail r; each leaf on every spine.

    Raises:
        ValueError: rails that do not share out the leafs.
    """
    if size.leafs % size.rails:
        raise ValueError(f"{size.leafs} leafs are no multiple of {size.rails} rails")
    each, hosts_a_leaf = size.leafs // size.rails, -(-size.hosts * size.rails // size.leafs)
    plan = FabricPlan(ports=max(40, hosts_a_leaf + size.spines, size.leafs))
    leafs, spines = _numbered("leaf", size.leafs), _numbered("spine", size.spines)
    for number, name in enumerate((*leafs, *spines)):
        plan.add_switch(name, _SWITCH_GUIDS + 0x40 * number)
    used = dict.fromkeys(leafs, 0)
    for host in range(size.hosts):
        for rail in range(size.rails):
            adapter, leaf = f"gpu-{host + 1:03d}/mlx5_{rail}", leafs[rail * each + host * each // size.hosts]
            guid = _ADAPTER_GUIDS + 0x10 * (host * size.rails + rail)
            plan.add_adapter(adapter, guid, adapter.replace("/", " "))
            used[leaf] += 1
            plan.cables.append(Cable(leaf, used[leaf], adapter, 1))
    for number, leaf in enumerate(leafs, start=1):
        for place, spine in enumerate(spines):
            plan.cables.append(Cable(leaf, plan.ports - size.spines + place + 1, spine, number))
    return plan


def _numbered(word: str, most: int) -> Sequence[str]:
    return [f"{word}{number:02d}" for number in range(1, most + 1)]

"""The names of an inventory's nodes, and what else they are called. Pure.

    names = KnownNames(["gpu-001", "gpu-002"], NodeAliases(domains=("cluster.local",)))
    names.canonical("gpu-001.cluster.local")        # "gpu-001"
    names.canonical("-rf")                          # RecordError

Every entry of the product asks here, and nowhere else: events, logs, telemetry, heartbeats, outages, alerts, archives.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from store.records.hostlist import check_node_name

_ADDRESS = re.compile(r"[0-9.]+", re.ASCII)
# Names that were looked up are kept for the next record; a sender that invents names fills no memory.
_MOST_KEPT = 65_536


@dataclass(frozen=True, slots=True)
class NodeAliases:
    """What an operator says of names. `aliases`: another name -> the node's. `domains`: FQDNs of these are the short
    name; none: of any domain. `fold_case`: capital letters make no other node.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    fold_case: bool = False


class KnownNames:
    """The names of an inventory, and what else its nodes are called. Safe for several threads."""

    def __init__(self, known: Collection[str] = (), said: NodeAliases | None = None) -> None:
        said = said or NodeAliases()
        self.known = frozenset(known)
        self._fold = said.fold_case
        self._domains = tuple("." + domain.strip(".").lower() for domain in said.domains)
        self._aliases = {self._folded(alias): node for alias, node in said.aliases.items()}
        self._by_fold = _single((self._folded(name), name) for name in self.known) if self._fold else {}
        self._by_short = _single((self._folded(_short(name)), name) for name in self.known if not _is_address(name))
        self._found: dict[str, str] = {}

    def canonical(self, name: str) -> str:
        """The name that the inventory has for a node; where it has none, the name itself.

        Raises:
            RecordError: it is no name of a node.
        """
        found = self._found.get(name)
        if found is None:
            found = self._look(name)
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            self._found[name] = found
        return found

    def _look(self, name: str) -> str:
        if name in self.known and name not in self._aliases:
            return name
        bare = name.removesuffix(".")
        if bare not in self.known:
            check_node_name(bare)
        folded = self._folded(bare)
        if folded in self._aliases:
            return self._aliases[folded]
        if bare in self.known:
            return bare
        if folded in self._by_fold:
            return self._by_fold[folded]
        return self._of_domain(bare, folded)

    def _of_domain(self, bare: str, folded: str) -> str:
        """The node of which this is the FQDN, or the short name; the name itself where there is none or are several."""
        if _is_address(bare):
            return bare
        short = _short(folded)
        found = self._by_short.get(short)
        if short == folded:  # a short name: the inventory may have the FQDN
            return found if found is not None and self._is_ours(found) else bare
        if not self._is_ours(bare):
            return bare
        if found is not None and "." not in found:
            return found
        # Named domains are the site's word, also for a node that no inventory has.
        return _short(bare) if self._domains and found is None else bare

    def _is_ours(self, name: str) -> bool:
        """Whether an FQDN is of a domain that is told apart from no other."""
        domain = name.lower()[len(_short(name)) :]
        return not self._domains or domain in self._domains

    def _folded(self, name: str) -> str:
        return name.lower() if self._fold else name


def _short(name: str) -> str:
    return name.partition(".")[0]


def _is_address(name: str) -> bool:
    """Whether it is an IPv4 address, whose first number names nothing."""
    return _ADDRESS.fullmatch(name) is not None


def _single(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The values of the keys that have one value alone."""
    found: dict[str, str | None] = {}
    for key, value in pairs:
        found[key] = value if found.get(key, value) == value else None
    return {key: value for key, value in found.items() if value is not None}

"""Which switches are cut off from a fabric when another one is taken away: what hangs on what, by reachability alone.

    hangs = cut_off({"leaf1": {"spine1"}, "leaf2": {"spine1"}}, {"leaf1": 32, "leaf2": 32})
    hangs["leaf1"]      # "spine1": the only way; a leaf with two spines hangs on neither

A fat tree, a dragonfly and a torus are all the same here: the articulation points of the graph of switches (Hopcroft
and Tarjan 1973), in time linear in its cables. Loops, parallel cables and cables of a switch to itself do no harm.
"""

from collections.abc import Collection, Mapping


def cut_off(switches: Mapping[str, Collection[str]], hosts: Mapping[str, int]) -> dict[str, str]:
    """Of each switch that one other cuts off from the rest, the nearest such one.

    Args:
        switches: each with its neighbours; a neighbour that is no key has no others.
        hosts: how many hosts each serves.
    """
    near: dict[str, set[str]] = {switch: set() for switch in switches}
    for switch, others in switches.items():
        for other in others:
            if other != switch:
                near[switch].add(other)
                near.setdefault(other, set()).add(switch)
    found: dict[str, str] = {}
    seen: set[str] = set()
    # Where the fabric has a middle, it is there: many neighbours, no hosts.
    for root in sorted(near, key=lambda one: (-len(near[one]), hosts.get(one, 0), one)):
        if root not in seen:
            found |= _of_part(root, near, hosts, seen)
    return found


def _of_part(root: str, near: Mapping[str, set[str]], hosts: Mapping[str, int], seen: set[str]) -> dict[str, str]:
    """The same of one connected part, by a search in depth without recursion."""
    order: dict[str, int] = {root: 0}
    low: dict[str, int] = {root: 0}
    path = [(root, iter(sorted(near[root])))]
    open_ones, met = [root], [root]
    found: dict[str, str] = {}
    # Of the root: what each of its blocks cuts off, with the hosts there.
    branches: list[tuple[int, list[str]]] = []
    seen.add(root)
    while path:
        switch, others = path[-1]
        other = next(others, None)
        if other is None:
            path.pop()
            if path:
                above = path[-1][0]
                low[above] = min(low[above], low[switch])
                if low[switch] >= order[above]:
                    at = _last_index(open_ones, switch)
                    block = open_ones[at:]
                    del open_ones[at:]
                    found.update(dict.fromkeys(block, above))
                    if above == root:
                        # What was met since is of this branch alone.
                        branches.append((sum(hosts.get(one, 0) for one in met[order[switch] :]), block))
        elif other not in order:
            order[other] = low[other] = len(order)
            seen.add(other)
            open_ones.append(other)
            met.append(other)
            path.append((other, iter(sorted(near[other]))))
        else:
            low[switch] = min(low[switch], order[other])
    _keep_main(branches, found)
    return found


def _last_index(items: list[str], wanted: str) -> int:
    """The place of an item that stands near the end."""
    return next(at for at in range(len(items) - 1, -1, -1) if items[at] == wanted)


def _keep_main(branches: list[tuple[int, list[str]]], found: dict[str, str]) -> None:
    """What is most of the fabric hangs on nothing: the root hangs on it, if anything."""
    total = sum(weight for weight, _ in branches)
    for weight, block in branches:
        if len(branches) == 1 or weight * 2 > total:
            for switch in block:
                del found[switch]

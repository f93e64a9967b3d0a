"""Where each node stands on the map: a column for each rack (or leaf); in a very large cluster a cell for each rack."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.text import words
from dashboard.text import words as vocabulary
from wire.nodes import NodeJson

MAX_CELLS = 1500  # beyond it a cell stands for a rack
GROUP = 16  # nodes a column where neither rack nor leaf is known
WIDTH = 40  # racks a row when each is one cell


@dataclass(frozen=True, slots=True)
class Cell:
    """One square of the map: a node, or a rack with the state of its worst node."""

    row: int
    column: int
    column_name: str
    name: str
    state: str
    hover: str


def cells(nodes: Sequence[NodeJson]) -> list[Cell]:
    """The map of the nodes, racks in the order of their names."""
    racks = _racks(nodes)
    if len(nodes) > MAX_CELLS:
        return [_rack_cell(i, name, members) for i, (name, members) in enumerate(racks.items())]
    return [
        Cell(row, column, words.drawn(name), node.node, node.state, _node_hover(node))
        for column, (name, members) in enumerate(racks.items())
        for row, node in enumerate(members)
    ]


def _racks(nodes: Sequence[NodeJson]) -> dict[str, list[NodeJson]]:
    """Nodes by rack, else by leaf, else in groups; each sorted by name."""
    racks: dict[str, list[NodeJson]] = {}
    some_placed = any(node.rack or node.leaf for node in nodes)
    for i, node in enumerate(sorted(nodes, key=lambda n: n.node)):
        elsewhere = "no rack" if some_placed else f"group {i // GROUP + 1}"
        racks.setdefault(node.rack or node.leaf or elsewhere, []).append(node)
    return dict(sorted(racks.items()))


def _node_hover(node: NodeJson) -> str:
    lines = [
        f"<b>{words.drawn(node.node)}</b>: {words.drawn(words.state(node.state))}",
        f"risk {words.risk(node.score_24h)} within 24 h, {words.risk(node.score_7d)} within 7 days"
        if node.withheld is None
        else "risk withheld: a score speaks of nodes that work",
    ]
    lines += [words.drawn(reason.text) for reason in node.reasons if not words.is_rest(reason)][:2]
    place = ", ".join(words.drawn(part) for part in (node.rack, node.leaf) if part)
    return "<br>".join([*lines, place] if place else lines)


def _rack_cell(i: int, name: str, members: Sequence[NodeJson]) -> Cell:
    counts = {state: sum(1 for n in members if n.state == state) for state in vocabulary.STATES}
    worst = next((state for state, n in counts.items() if n), "silent")
    said = ", ".join(f"{n} {words.state(state)}" for state, n in counts.items() if n)
    riskiest = max(members, key=lambda n: n.score_24h or 0.0)
    risk = f"{words.drawn(riskiest.node)}, {words.risk(riskiest.score_24h)} within 24 h"
    hover = f"<b>{words.drawn(name)}</b>: {said}<br>riskiest {risk}"
    return Cell(i // WIDTH, i % WIDTH, "", riskiest.node, worst, hover)

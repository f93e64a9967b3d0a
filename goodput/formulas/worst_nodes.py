"""What taking the worst nodes out would be worth: how much more they will fail, not how much more they did.

    excess([3, 1, 1], nodes=64, worst=2)

Nodes that failed most were partly unlucky: counts regress to the mean. Each node's rate is taken as gamma distributed
over the nodes (as FIELD D6 finds it), with the shape k that the counts' variance gives (method of moments). A node with
c failures is then expected to have (c + k) / (1 + k / m) in as much time again, m the mean. Where counts vary no more
than chance allows, k is infinite and no node is worse than another (empirical Bayes; Robbins 1956).
"""

from collections.abc import Sequence

import numpy as np

from goodput.formulas.sampling import DRAWS, Floats


def shape_of(counts: Sequence[int], nodes: int) -> float:
    """The gamma shape of the nodes' rates; infinite where the counts are as even as chance makes them.

    Args:
        counts: failures of the nodes that failed; the others of `nodes` had none.

    Raises:
        ValueError: more nodes failed than there are.
    """
    if nodes < len(counts) or nodes < 1:
        raise ValueError(f"{len(counts)} nodes of {nodes} cannot have failed")
    mean = sum(counts) / nodes
    squares = sum(count**2 for count in counts) / nodes
    variance = (squares - mean**2) * nodes / max(1, nodes - 1)
    return mean**2 / (variance - mean) if variance > mean > 0 else float("inf")


def expected_share(counts: Sequence[int], nodes: int, worst: int) -> float:
    """The share of all failures (0-1) that taking the worst nodes out for average ones will avoid."""
    total, shape = sum(counts), shape_of(counts, nodes)
    if not total or shape == float("inf"):
        return 0.0
    mean = total / nodes
    again = [(count + shape) / (1 + shape / mean) for count in sorted(counts, reverse=True)[:worst]]
    return max(0.0, sum(rate - mean for rate in again) / total)


def share_draws(counts: Sequence[int], nodes: int, worst: int, dice: np.random.Generator) -> Floats:
    """The same share, each worst node's rate drawn from what its count leaves open."""
    total, shape = sum(counts), shape_of(counts, nodes)
    chosen = np.array(sorted(counts, reverse=True)[:worst], dtype=np.float64)
    if not total or shape == float("inf") or not len(chosen):
        return np.zeros(DRAWS)
    mean = total / nodes
    rates = dice.gamma(chosen + shape, size=(DRAWS, len(chosen))) / (1 + shape / mean)
    drawn: Floats = np.clip((rates - mean).sum(axis=1) / total, -1.0, 1.0)
    return drawn

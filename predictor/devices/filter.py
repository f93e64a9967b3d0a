"""The forward filter of devices: three states, in continuous time, many devices at once.

A device changes its state at the rates of `store/catalogs/device_states.csv`, and shows signs at those of
`device_signs.csv`. Between signs the probabilities p follow p exp(A t), A = Q - diag(signs + outages per hour), and are
scaled to 1: silence speaks for health. A sign multiplies p by its rate in each state (a Poisson process that the state
modulates: Fischer and Meier-Hellstern, The Markov-modulated Poisson process cookbook, 1993). An outage is the sign of
one device among those of its node, each blamed by its share of their hazards. A repair moves its `cured` to healthy.

Every sum is of three terms, written out: the same bits however many devices are asked at once.
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictor.history.arrays import Floats, Ints
from predictor.history.families import FAMILIES
from store.catalog_rows import rows
from store.nodes.repairs import repair_kinds

STATES = ("healthy", "degraded", "failing")
HEALTHY, DEGRADED, FAILING = range(3)

Vectors: TypeAlias = Floats  # (devices, 3)


@dataclass(frozen=True, slots=True)
class StateFigures:
    """The tables as arrays: one entry a type of device, a sign, a repair.

    `start` is the state of a device that has been quiet for long. `values` (types, 3), `right` and `left`
    (types, 3, 3) are the eigenvalues and vectors of A; `risk_values`, `risk_right` and `risk_left` those of
    Q - diag(outages per hour). `sign` is (families, serious or not, 3), per hour.
    """

    types: tuple[str, ...]
    start: Vectors
    values: Floats
    right: NDArray[np.float64]
    left: NDArray[np.float64]
    risk_values: Floats
    risk_right: NDArray[np.float64]
    risk_left: NDArray[np.float64]
    hazard: Vectors
    sign: NDArray[np.float64]
    cured: Floats


@cache
def figures() -> StateFigures:
    """The shipped tables."""
    devices = [{name: value for name, value in row.items() if name != "source"} for row in rows("device_states")]
    quiet, risk = zip(*(_generators(row) for row in devices), strict=True)
    values, right, left = zip(*map(_spectrum, quiet), strict=True)
    risky = [_spectrum(one) for one in risk]
    # The left eigenvector of the slowest decay: what a quiet device comes to.
    start = np.array([vectors[int(np.argmax(own))] for own, vectors in zip(values, left, strict=True)])
    return StateFigures(
        types=tuple(row["device"] for row in devices),
        start=start / start.sum(axis=1, keepdims=True),
        values=np.array([own - own.max() for own in values]),
        right=np.array(right),
        left=np.array(left),
        risk_values=np.array([one[0] for one in risky]),
        risk_right=np.array([one[1] for one in risky]),
        risk_left=np.array([one[2] for one in risky]),
        hazard=np.array([[float(row[f"outage_{state}_per_h"]) for state in STATES] for row in devices]),
        sign=_sign_rates(),
        cured=np.array([kind.cured for kind in repair_kinds()]),
    )


def _generators(row: dict[str, str]) -> tuple[Floats, Floats]:
    """A and Q - diag(outages) of one type of device, per hour."""
    degrade, recover, worsen, ease = (float(row[f"{name}_per_h"]) for name in ("degrade", "recover", "worsen", "ease"))
    change = np.array([[-degrade, degrade, 0.0], [recover, -recover - worsen, worsen], [0.0, ease, -ease]])
    risk = change - np.diag([float(row[f"outage_{state}_per_h"]) for state in STATES])
    return risk - np.diag([0.0, *(float(row[f"quiet_{state}_per_h"]) for state in STATES[1:])]), risk


def _spectrum(generator: Floats) -> tuple[Floats, Floats, Floats]:
    """Eigenvalues, right vectors as columns, left ones as rows: those of a birth-death process are real."""
    values, right = np.linalg.eig(generator)
    return values.real, right.real, np.linalg.inv(right.real)


def _sign_rates() -> NDArray[np.float64]:
    """What each family's signs speak for: (families, serious or not, 3); a family of no row says nothing."""
    found = np.ones((len(FAMILIES), 2, 3))
    place = {family.name: at for at, family in enumerate(FAMILIES)}
    for row in reversed(list(rows("device_signs"))):
        serious = {"any": [0, 1], "no": [0], "yes": [1]}[row["serious"]]
        found[place[row["family"]], serious] = [float(row[f"{state}_per_h"]) for state in STATES]
    return found


def scaled(p: Vectors) -> Vectors:
    """Rows that add up to 1."""
    total = (p[:, 0] + p[:, 1]) + p[:, 2]
    return p / total[:, None]


def after_quiet(p: Vectors, kind: Ints, hours: Floats) -> Vectors:
    """The probabilities of devices of some types after hours without a sign; hours below 0 count as none."""
    own = figures()
    decay = np.exp(own.values[kind] * np.maximum(hours, 0.0)[:, None])
    return scaled(np.maximum(_through(p, own.right[kind], decay, own.left[kind]), 0.0))


def _through(p: Vectors, right: Floats, decay: Floats, left: Floats) -> Vectors:
    part = ((p[:, 0, None] * right[:, 0] + p[:, 1, None] * right[:, 1]) + p[:, 2, None] * right[:, 2]) * decay
    return (part[:, 0, None] * left[:, 0] + part[:, 1, None] * left[:, 1]) + part[:, 2, None] * left[:, 2]


def after_sign(p: Vectors, family: Ints, serious: Ints) -> Vectors:
    """The probabilities of devices that have just shown a sign."""
    return scaled(p * figures().sign[family, serious])


def after_outage(p: Vectors, kind: Ints, group: Ints, rest_per_h: Floats) -> Vectors:
    """The probabilities of devices whose node has just gone out: each is blamed by its share of the hazards.

    Args:
        group: the node of each device, 0 to n - 1.
        rest_per_h: (n), the hazard of what no device of the node stands for.
    """
    hazards = p * figures().hazard[kind]
    own = (hazards[:, 0] + hazards[:, 1]) + hazards[:, 2]
    # One after another: what stands for nothing changes no bit of the sum.
    total = np.bincount(group, own, minlength=len(rest_per_h)) + rest_per_h
    blame = (own / total[group])[:, None]
    return scaled(blame * (hazards / own[:, None]) + (1.0 - blame) * p)


def after_repair(p: Vectors, repair: Ints) -> Vectors:
    """The probabilities of devices after a repair of each: what it cured is healthy."""
    cured = figures().cured[repair]
    found = p * (1.0 - cured)[:, None]
    found[:, HEALTHY] += cured
    return found


def survival(p: Vectors, kind: Ints, hours: float) -> Floats:
    """The chance that each device does not take its node out of service within so many hours."""
    own = figures()
    # Of a device that is surely in a state: (types, 3).
    sure = (own.risk_right * (np.exp(own.risk_values * hours) * own.risk_left.sum(axis=2))[:, None, :]).sum(axis=2)
    chance = [sure[:, state].take(kind) for state in range(len(STATES))]
    found: Floats = np.clip((p[:, 0] * chance[0] + p[:, 1] * chance[1]) + p[:, 2] * chance[2], 0.0, 1.0)
    return found

"""A prior: what other clusters taught about each sign, as a small file that sites can hand on.

    prior = packaged()                      # predictor/hazard/prior.json
    prior = parse_prior(Path(file).read_bytes())   # from somebody else: checked strictly
    prior.evidence[24].rates()

The file holds, for each horizon, two numbers a sign: a shape (failures) and an exposure (unit-hours). It names no node,
no event and no time. A shape is at most MOST_SHAPE, however much stands behind it, so that what a site sees itself soon
counts for more: clusters differ more from each other than one cluster's count is uncertain.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from predictor.hazard.blend import HazardBlend, no_trees
from predictor.hazard.hazard import HazardEvidence
from predictor.hazard.signs import SIGN_NAMES
from predictor.history.arrays import Feature
from predictor.model.forest import ModelError

MOST_SHAPE = 10.0
MOST_BYTES = 100_000
_VERSION = 1
_MOST_SOURCE = 500
# No sign says more than this many failures an hour, whoever says so: a node that fails within minutes needs no score.
_MOST_RATE = 1.0
_LEAST = 1e-12
_FILE = Path(__file__).with_name("prior.json")


class PriorError(ModelError):
    """A file that is no prior; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of the signs before a site has seen anything: of each horizon in hours, (1, signs) figures."""

    evidence: Mapping[int, HazardEvidence]
    source: str

    def model(self, features: tuple[Feature, ...], horizon_h: int) -> HazardBlend:
        """A model of this alone, over some features."""
        names = tuple(feature.name for feature in features)
        return HazardBlend(no_trees(), names, self.evidence[horizon_h].rates(), horizon_h, 1.0)


def weakened(known: HazardEvidence) -> HazardEvidence:
    """The same rates, resting on MOST_SHAPE failures a sign at most."""
    shape = np.minimum(known.shape, MOST_SHAPE)
    return HazardEvidence(shape, shape / known.rates())


def packaged() -> Prior:
    """The prior that comes with the package."""
    return _packaged()


@cache
def _packaged() -> Prior:
    return parse_prior(_FILE.read_bytes())


def to_json(prior: Prior) -> bytes:
    """A prior as the text of a file."""
    horizons = {
        str(hours): {
            name: [float(f"{shape:.4g}"), float(f"{exposure:.4g}")]
            for name, shape, exposure in zip(SIGN_NAMES, known.shape[0], known.exposure[0], strict=True)
        }
        for hours, known in prior.evidence.items()
    }
    whole = {"version": _VERSION, "source": prior.source, "horizons_h": horizons}
    return json.dumps(whole, indent=1).encode() + b"\n"


def parse_prior(text: bytes) -> Prior:
    """The prior of a file that anybody may have written.

    Raises:
        PriorError: it is too large, no JSON, of another version, or a figure is missing, unknown or out of bounds.
    """
    if len(text) > MOST_BYTES:
        raise PriorError(f"the file has {len(text)} bytes, a prior has at most {MOST_BYTES}")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PriorError("the file is no JSON") from error
    if not isinstance(whole, dict) or set(whole) != {"version", "source", "horizons_h"}:
        raise PriorError("the file is no prior: it needs `version`, `source` and `horizons_h` and nothing else")
    version, source, horizons = whole["version"], whole["source"], whole["horizons_h"]
    if version != _VERSION:
        raise PriorError(f"the prior is not of version {_VERSION}: export it again with this version of Foreshock")
    if not isinstance(source, str) or len(source) > _MOST_SOURCE or not source.isprintable():
        raise PriorError(f"`source` is not a line of at most {_MOST_SOURCE} printable characters")
    if not isinstance(horizons, dict) or set(horizons) != {"24", "168"}:
        raise PriorError("`horizons_h` has not the horizons 24 and 168 alone")
    return Prior({int(hours): _evidence(hours, signs) for hours, signs in horizons.items()}, source)


def _evidence(hours: str, signs: Any) -> HazardEvidence:
    if not isinstance(signs, dict) or set(signs) != set(SIGN_NAMES):
        raise PriorError(f"horizon {hours} has not the signs of this version of Foreshock")
    found = np.array([_figures(f"horizon {hours}, {name!r}", signs[name]) for name in SIGN_NAMES], dtype=np.float64)
    return HazardEvidence(found[None, :, 0], found[None, :, 1])


def _figures(place: str, pair: Any) -> tuple[float, float]:
    """Shape and exposure, within their bounds."""
    numbers = isinstance(pair, list) and len(pair) == 2 and all(type(one) in (int, float) for one in pair)
    if not numbers or any(abs(one) > 1e300 or not math.isfinite(one) for one in pair):
        raise PriorError(f"{place} are not two finite numbers")
    shape, exposure = float(pair[0]), float(pair[1])
    if not _LEAST <= shape <= MOST_SHAPE or not _LEAST <= exposure <= 1e15 or shape / exposure > _MOST_RATE:
        raise PriorError(f"{place}: shape {shape:g} and exposure {exposure:g} are out of bounds")
    return shape, exposure

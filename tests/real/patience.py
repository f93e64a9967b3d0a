"""How long tests wait: `FORESHOCK_TEST_PATIENCE` is the factor of every bound on a wait for what should happen.

    process.wait(patience(60))

A wait ends as soon as what it waits for is there, so a large factor costs time where something is broken alone.
A time that is itself what a test is about is written as it is.
"""

import math
import os
from collections.abc import Mapping

VARIABLE = "FORESHOCK_TEST_PATIENCE"
_DEFAULT = 3.0


def factor(environ: Mapping[str, str]) -> float:
    """The factor that an environment gives.

    Raises:
        ValueError: it is no number above 0.
    """
    text = environ.get(VARIABLE, "").strip()
    try:
        found = float(text) if text else _DEFAULT
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise ValueError(f"{VARIABLE} is {text!r}: give a number above 0, such as 3, or leave it out for {_DEFAULT:g}")
    return found


_FACTOR = factor(os.environ)


def patience(quiet_s: float) -> float:
    """The seconds that a test waits at most for what comes within `quiet_s` on a quiet machine."""
    return quiet_s * _FACTOR

"""A simulated cluster's truth beside a backtest: what could be known, class by class, and the oracle's figures.

The simulator writes `outages.json` (each outage's class, and whether it had a precursor) and `oracle.json` (how well
a reader of the hidden state would have ranked; he sees more than any log tells, so that 0.2 to 0.4 of his average
precision is honest work, and above 0.6 one should look for leakage).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from predictor.history.arrays import Bools, Ints, to_ms
from predictor.model.skill import FORESEEN_TOP, TOPS, Judged, flagged_share, ratio
from store.records.event import RecordError, parse_time

# Which classes announce themselves in at least 30 % of the cases (FIELD D7). One that is not among them is predictable
# if so large a share of its outages had a precursor: D7 has a gap from 20 to 30 %.
KNOWN_CLASSES = {
    **dict.fromkeys(("hbm_ecc", "nvlink", "link_optics", "thermal_psu"), True),
    **dict.fromkeys(("off_bus", "gsp", "host"), False),
}
PREDICTABLE_SHARE = 0.25
# The archive tells outages to the second, the truth to the millisecond.
_TOLERANCE_MS = 1500


class TruthError(ValueError):
    """The truth cannot be read; the message names the file."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Outages, one entry each, sorted by (node, start); `visible` ones had a precursor, from `warning_ms` on."""

    node: Ints  # position in the fleet's names; -1 for one that the fleet does not know
    start_ms: Ints
    kind: tuple[str, ...]
    visible: Bools
    warning_ms: Ints  # FAR in the future where there was none
    oracle: dict[str, Any]


def read_truth(directory: Path, names: Sequence[str]) -> Truth:
    """The truth of a folder that `foreshock simulate` wrote.

    Raises:
        TruthError: a file is missing or of another kind.
    """
    try:
        outages = json.loads((directory / "outages.json").read_bytes())
        oracle = json.loads((directory / "oracle.json").read_bytes())
        index = {name: i for i, name in enumerate(names)}
        rows = sorted(
            (
                index.get(one["node"], -1),
                to_ms(parse_time(one["start"])),
                str(one["class"]),
                bool(one["visible"]),
                to_ms(parse_time(one["warning"])) if one["warning"] else 2**62,
            )
            for one in outages
        )
        node, start, kind, visible, warning = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        horizons = dict(oracle["horizons"])
    except OSError as error:
        raise TruthError(f"cannot read {error.filename}: name the folder `truth` that `simulate` wrote") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecordError) as error:
        raise TruthError(f"{directory} holds no truth of a simulated cluster ({error!r})") from error
    return Truth(
        np.array(node, dtype=np.int64),
        np.array(start, dtype=np.int64),
        tuple(kind),
        np.array(visible, dtype=np.bool_),
        np.array(warning, dtype=np.int64),
        horizons,
    )


def against_truth(judged: Judged, truth: Truth, report: dict[str, Any]) -> dict[str, Any]:
    """`classes`, `predictable`, `with_precursor`, `precursor_begun`, `oracle`.

    Each of the parts of the failures has `rows`, `recall_at_top` (of its positive rows), `outages` and `foreseen`
    (the share of its outages that stood in the top 5 % at least once within the horizon).

    Args:
        judged: known rows alone.
        report: what is known so far: horizon, average precision, prevalence.
    """
    hit = np.flatnonzero(judged.labels.positive)
    match = _match(judged.node[hit], judged.labels.next_start_ms[hit], truth)
    shares = {top: flagged_share(judged, top)[hit] for top in TOPS}
    outage = np.stack([judged.node[hit].astype(np.float64), judged.labels.next_start_ms[hit]])
    number = np.unique(outage, axis=1, return_inverse=True)[1].ravel() if len(hit) else np.zeros(0, dtype=np.int64)

    def part(of: Bools) -> dict[str, Any]:
        rows = int(of.sum())
        flagged = of & (shares[FORESEEN_TOP] >= 1.0)
        outages = len(np.unique(number[of]))
        return {
            "rows": rows,
            "outages": outages,
            "recall_at_top": {str(top): ratio(float(share[of].sum()), rows) for top, share in shares.items()},
            "foreseen": ratio(len(np.unique(number[flagged])), outages),
        }

    kind = np.array([*truth.kind, "unknown"])[match]
    visible = np.append(truth.visible, False)[match]
    begun = np.append(truth.warning_ms, 2**62)[match] <= judged.time_ms[hit]
    reported = {name: _share_visible(truth, name) for name in sorted(set(truth.kind))}
    predictable = [name for name, share in reported.items() if KNOWN_CLASSES.get(name, share >= PREDICTABLE_SHARE)]
    return {
        "classes": {name: {"share_with_precursor": share, **part(kind == name)} for name, share in reported.items()},
        "predictable": {"classes": predictable, **part(np.isin(kind, predictable))},
        "with_precursor": part(visible),
        "precursor_begun": part(begun),
        "unmatched_rows": int((match < 0).sum()),
        "oracle": _oracle(truth, report),
    }


def _share_visible(truth: Truth, name: str) -> float:
    of = np.array(truth.kind) == name
    return float(truth.visible[of].mean())


def _match(node: Ints, start_ms: Any, truth: Truth) -> Ints:
    """The position of each outage in the truth, -1 where it has none."""
    found = np.full(len(node), -1, dtype=np.int64)
    if not len(truth.node):
        return found
    keys = truth.node * 2**42 + truth.start_ms
    wanted = node * 2**42 + start_ms.astype(np.int64)
    place = np.searchsorted(keys, wanted - _TOLERANCE_MS, side="left")
    near = np.minimum(place, len(keys) - 1)
    fits = (place < len(keys)) & (np.abs(keys[near] - wanted) <= _TOLERANCE_MS)
    found[fits] = near[fits]
    return found


def _oracle(truth: Truth, report: dict[str, Any]) -> dict[str, Any] | None:
    """The oracle's figures, and ours as parts of them: of its average precision, and of its lift.

    It ranked all days, we only those judged; where failures are more frequent, the average precision is higher for
    all, so that the lift is the fairer of the two.
    """
    best = truth.oracle.get(str(report["horizon_h"]))
    if not isinstance(best, dict) or not best.get("average_precision"):
        return None
    mine = report["average_precision"]
    return {
        **best,
        "average_precision_ratio": None if mine is None else mine / best["average_precision"],
        "lift_ratio": ratio(report["lift"], best["lift"]) if report["lift"] is not None else None,
    }

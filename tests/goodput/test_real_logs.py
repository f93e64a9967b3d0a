"""The ledger on logs of real training programs, whose lines mostly bear no time."""

import gzip
import json
from pathlib import Path

import pytest

from goodput.ledger import Ledger, RunRecords, account
from goodput.training_log import lines_of
from parsers.parser import Context, parse
from parsers.registry import PARSERS

LOGS = Path(__file__).parents[2] / "../shared/data/training"

pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared training logs are not beside this checkout")
NAMES = sorted(path.name for path in LOGS.glob("*.log.gz"))


def ledger(name: str) -> Ledger:
    """The account of a log alone, without jobs."""
    with gzip.open(LOGS / name) as stream:
        events = list(parse(PARSERS["training"].make(Context(run=name)), stream))
    return account(RunRecords(name, log=lines_of(events)))


@pytest.mark.parametrize("name", NAMES)
def test_every_log_is_accounted_for_exactly(name: str) -> None:
    """Whatever it lacks, the buckets sum to the wall time and the iterations are in them."""
    made = ledger(name)
    assert sum(made.buckets_ms.values()) == made.wall_ms
    facts = json.loads((LOGS / "facts.json").read_text(encoding="utf-8"))[name]
    if facts.get("iteration_lines") and facts.get("ms_per_iteration_median"):
        buckets = made.buckets_ms
        worked = buckets["productive"] + buckets["degraded"] + buckets["lost_work"]
        # A log that ends in a save or before its second line has less than the median promises.
        assert worked >= 0.5 * facts["iteration_lines"] * facts["ms_per_iteration_median"]

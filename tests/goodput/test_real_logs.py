"""The ledger on logs of real training programs, whose lines mostly bear no time."""

import gzip
import json
from pathlib import Path

import pytest

from goodput.account import account
from goodput.formulas.shape import Shape
from goodput.ledger import Ledger, RunRecords
from goodput.log.training_log import lines_of
from parsers.registry import PARSERS
from parsers.text.parser import Context, parse

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


def known(name: str) -> dict[str, float]:
    """The buckets that hold anything, in seconds."""
    return {bucket: length / 1000 for bucket, length in ledger(name).buckets_ms.items() if length}


def test_the_save_that_a_program_dies_in_is_unfinished_and_keeps_nothing() -> None:
    """Five iterations and the beginning of a save; the launcher kills the others, and all is lost."""
    made = ledger("megatron_deepspeed_2n_dies_in_save.log.gz")
    (save,) = made.unfinished_saves
    assert (save.iteration, made.saves, made.goodput) == (5, (), 0.0)
    (cut,) = made.interruptions
    assert cut.lost_work_ms == pytest.approx(378_287, abs=100)
    assert made.to_json()["unfinished_saves"][0]["iteration"] == 5
    assert known("megatron_deepspeed_2n_dies_in_save.log.gz")["startup"] == pytest.approx(17, abs=1)


def test_a_job_out_of_time_has_lost_what_it_never_saved() -> None:
    """Sixty iterations, no save; the first line's excess is the compilation."""
    told = known("megatron_pp64_n64.log.gz")
    assert set(told) == {"startup", "checkpoint_load", "lost_work"}
    assert told["startup"] == pytest.approx(10 * (19.932 - 6.736) + 1, abs=2)
    assert len(ledger("megatron_pp64_n64.log.gz").interruptions) == 1


def test_a_job_that_was_cancelled_is_no_interruption() -> None:
    """Two hundred iterations of about 1.6 s; ten slow ones at the start."""
    told = known("megatron_pp8_n8.log.gz")
    assert ledger("megatron_pp8_n8.log.gz").interruptions == ()
    assert told["startup"] == pytest.approx(10 * (3.1713 - 1.6183) + 1, abs=1)
    assert told["productive"] == pytest.approx(200 * 1.6183, rel=0.06)


def test_logs_without_trouble_are_work() -> None:
    """Forty-nine iterations of 137 s; three of 124 s; two of 148 s."""
    assert known("megatron_deepspeed_3d_n16.log.gz")["productive"] == pytest.approx(49 * 137.1, rel=0.02)
    assert known("megatron_deepspeed_zero_n16.log.gz")["productive"] == pytest.approx(3 * 123.9, rel=0.02)
    assert known("megatron_deepspeed_3d_old_nccl_n16.log.gz")["productive"] == pytest.approx(295.7, abs=0.1)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("megatron_pp8_n8.log.gz", Shape(batch=4, layers=48, seq=1024, hidden=7168)),
        ("megatron_deepspeed_2n_dies_in_save.log.gz", Shape(batch=2048, layers=32, seq=2048, hidden=4096)),
        ("megatron_deepspeed_zero_n16.log.gz", None),  # it prints a batch of one rank alone
        ("hf_trainer_deepspeed_n4.log.gz", None),
    ],
)
def test_the_models_shape_is_that_of_the_printed_arguments(name: str, shape: Shape | None) -> None:
    """All four figures or nothing: a batch is never guessed."""
    assert ledger(name).shape == shape


def test_a_log_of_bars_alone_is_the_work_that_the_last_bar_shows() -> None:
    """Sixteen steps without a loss line; the Trainer's own count says 919.097 s."""
    made = ledger("hf_trainer_deepspeed_n4.log.gz")
    assert (made.wall_ms, made.goodput) == (919_000, 1.0)

"""MFU: the published examples, and nothing from nothing."""

import pytest

from goodput.cluster.mfu import mfu, peak_tflops, what_is_missing
from goodput.formulas.shape import Shape
from store.catalog_rows import rows

GPT3 = Shape(batch=1536, layers=96, seq=2048, hidden=12288)


def test_a_published_throughput_is_found_again() -> None:
    """GPT-3 175B in Narayanan et al.: 140 TFLOPS a GPU on 1024 A100, recomputation (4/3 of the model's) counted.

    Their formula's output layer (2 %) left out, 140 * 3/4 / 312 of the peak is the model's own.
    """
    step_s = 96 * GPT3.batch * GPT3.seq * GPT3.hidden**2 * (1 + GPT3.seq / (6 * GPT3.hidden)) * 96 / (140e12 * 1024)
    assert mfu(GPT3, step_s, 1024, 312.0) == pytest.approx(140 * 0.75 / 312)


@pytest.mark.parametrize("missing", range(4))
def test_without_any_part_there_is_none(missing: int) -> None:
    """Missing is missing: never 0, never a guess."""
    parts = [None if i == missing else part for i, part in enumerate([GPT3, 8.0, 1024, 312.0])]
    assert mfu(*parts) is None  # type: ignore[arg-type]
    assert mfu(GPT3, 8.0, 1024, 312.0) is not None


@pytest.mark.parametrize(
    ("model", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("H100-SXM5-80GB", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA H20", 148),
        ("NVIDIA GB200", 2500),
        ("NVIDIA B200", 2250),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("AMD Instinct MI300X OAM", 1307.4),
        ("AMD Instinct MI250X", 383),
        ("TPU v5p", None),
        (None, None),
    ],
)
def test_the_peak_is_that_of_the_model_s_data_sheet(model: str | None, peak: float | None) -> None:
    """By the names that drivers print; an unknown model has none."""
    assert peak_tflops(model) == peak


def test_every_row_of_the_catalogue_has_its_source() -> None:
    """And a figure."""
    for row in rows("gpu_peaks"):
        assert float(row["tflops"]) > 0
        assert row["source"]


def test_what_is_missing_is_said() -> None:
    """For the person who wonders why there is no figure."""
    assert what_is_missing(GPT3, 1.0, 8, "H100") == []
    assert what_is_missing(None, None, None, None) == [
        "the model's shape",
        "the time of a step",
        "the number of GPUs",
        "one GPU model for all of its nodes",
    ]
    assert what_is_missing(GPT3, 1.0, 8, "TPU v5p") == ["the peak of TPU v5p"]

"""dcgm-exporter's pages."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.dcgm import BLANKS, RENAMED, DcgmParser, samples
from parsers.parser import Context, ParseError, parse
from store.telemetry import COUNTERS, GAUGES, Sample

NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
VENDORS = Path(__file__).parents[2] / ".." / "shared" / "data" / "vendors"


def metric(
    name: str, value: str = "61", labels: str = 'gpu="3",UUID="GPU-1",Hostname="gpu-017"', time: str = ""
) -> str:
    """One line of a page."""
    return f"{name}{{{labels}}} {value} {time}".rstrip()


def one(*lines: str, context: Context | None = None) -> Sample:
    """The one sample of some lines."""
    (sample,) = samples("\n".join(lines), context or Context(until=NOW))
    return sample


def test_a_sample_gathers_the_metrics_of_one_gpu() -> None:
    """By canonical names, ratios as ratios."""
    sample = one(
        metric("DCGM_FI_DEV_GPU_TEMP", labels='gpu="3",UUID="GPU-1",pci_bus_id="00000000:0F:00.0",Hostname="gpu-017"'),
        metric("DCGM_FI_DEV_GPU_UTIL", "97"),
        metric("DCGM_FI_DEV_FB_USED", "70123"),
        metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "4"),
    )
    values = {"gpu_temp_c": 61.0, "gpu_util_ratio": 0.97, "ecc_sbe": 4.0}
    assert sample == Sample(NOW, "gpu-017", 3, values, uuid="GPU-1", pci="0000:0f:00.0")


def test_the_lines_own_time_wins() -> None:
    """In milliseconds."""
    assert one(metric("DCGM_FI_DEV_GPU_TEMP", time="1740801906250")).time == NOW.replace(microsecond=250_000)


@pytest.mark.parametrize("label", ["Hostname", "hostname"])
def test_both_host_labels_are_read(label: str) -> None:
    """And the context's node without either."""
    assert one(metric("DCGM_FI_DEV_GPU_TEMP", labels=f'gpu="3",{label}="gpu-9"')).node == "gpu-9"
    assert one(metric("DCGM_FI_DEV_GPU_TEMP", labels='gpu="3"'), context=Context(node="n", until=NOW)).node == "n"


@pytest.mark.parametrize(
    "blank", [*(f"{value:.0f}" for value in sorted(BLANKS)), "NaN", "+Inf", "9.223372036854776e+18"]
)
def test_a_blank_value_is_missing(blank: str) -> None:
    """Never 0, never a huge number."""
    sample = one(metric("DCGM_FI_DEV_GPU_TEMP"), metric("DCGM_FI_DEV_MEMORY_TEMP", blank))
    assert sample.values == {"gpu_temp_c": 61.0}


@pytest.mark.parametrize(("present", "former"), RENAMED.items())
def test_present_and_former_names_are_the_same_field(present: str, former: str) -> None:
    """DCGM renamed them, the exporter did not."""
    assert former in {*GAUGES, *COUNTERS}
    assert one(metric(present, "1")).values == one(metric(former, "1")).values


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' tables (../shared/data/vendors) are not on this machine")
def test_names_and_blanks_agree_with_the_vendors_tables() -> None:
    """Every renamed field that we use is known by both names; every numeric blank is missing."""
    fields = list(csv.DictReader((VENDORS / "dcgm_fields.csv").read_text().splitlines()))
    used = {*GAUGES, *COUNTERS}
    renamed = {row["name"]: row["former_names"] for row in fields if row["former_names"] in used}
    assert renamed == dict(RENAMED)
    blanks = list(csv.DictReader((VENDORS / "dcgm_blank_values.csv").read_text().splitlines()))
    assert {float(row["value"]) for row in blanks if row["value_type"] != "string"} == BLANKS


@pytest.mark.parametrize(
    ("name", "value", "ratio"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "97", 0.97),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "97", 0.97),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.970000", 0.97),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "1", 0.01),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "1.000000", 1.0),
    ],
)
def test_utilization_is_a_ratio_whatever_the_field_counts_in(name: str, value: str, ratio: float) -> None:
    """One name stood for per cent, then for 0.0 to 1.0."""
    assert one(metric(name, value)).values["gpu_util_ratio"] == pytest.approx(ratio)


def test_mig_instances_of_one_gpu_are_one_sample() -> None:
    """The GPU's temperature is printed for each instance."""
    labels = 'gpu="3",UUID="GPU-1",GPU_I_ID="{}",Hostname="gpu-017"'
    lines = [metric("DCGM_FI_DEV_GPU_TEMP", labels=labels.format(instance)) for instance in (1, 2, 3)]
    assert one(*lines).values == {"gpu_temp_c": 61.0}


def test_a_page_of_a_whole_cluster_keeps_equal_indices_apart() -> None:
    """GPU 0 of two hosts."""
    page = "\n".join(metric("DCGM_FI_DEV_GPU_TEMP", labels=f'gpu="0",Hostname="{node}"') for node in ("a", "b"))
    assert [(sample.node, sample.gpu) for sample in samples(page, Context(until=NOW))] == [("a", 0), ("b", 0)]


def test_a_metric_that_comes_again_begins_the_next_sample() -> None:
    """Two scrapes in one file."""
    page = "\n".join(metric("DCGM_FI_DEV_GPU_TEMP", str(t)) for t in (61, 62))
    assert [sample.values for sample in samples(page, Context(until=NOW))] == [
        {"gpu_temp_c": 61.0},
        {"gpu_temp_c": 62.0},
    ]


@pytest.mark.parametrize(
    "broken",
    [
        'DCGM_FI_DEV_POWER_USAGE{gpu="3",UUID="GPU-1",Host',
        'DCGM_FI_DEV_POWER_USAGE{gpu="3",UUID="GPU-1",Hostname="gpu-017"}',
        'DCGM_FI_DEV_POWER_USAGE{gpu="3",UUID="GPU-1",Hostname="gpu-017"} many',
        "DCGM_FI_DEV_POWER_USAGE",
    ],
)
def test_a_page_cut_short_gives_what_was_whole(broken: str) -> None:
    """The parser counts the broken line, the page reader passes it by."""
    lines = [metric("DCGM_FI_DEV_GPU_TEMP"), broken]
    assert one(*lines).values == {"gpu_temp_c": 61.0}
    errors: list[int] = []
    events = list(parse(DcgmParser(Context(until=NOW)), lines, lambda line, _error: errors.append(line)))
    assert (errors, [event.kind for event in events]) == ([2], ["telemetry"])


@pytest.mark.parametrize("labels", ['nvswitch="0",Hostname="a"', 'gpu="MIG-1",Hostname="a"', 'cpu="1",Hostname="a"'])
def test_what_is_no_gpus_metric_is_passed_by(labels: str) -> None:
    """Switches and CPUs."""
    assert samples(metric("DCGM_FI_DEV_GPU_TEMP", labels=labels), Context(until=NOW)) == []


def test_labels_may_hold_anything() -> None:
    """Escaped quotes, braces, commas."""
    labels = r'gpu="3",Hostname="gpu-017",err_msg="a \"b\", {c} \\ \n",UUID="GPU-1"'
    assert one(metric("DCGM_FI_DEV_GPU_TEMP", labels=labels)).uuid == "GPU-1"


@pytest.mark.parametrize(
    ("context", "labels", "what"),
    [(Context(node="a"), 'gpu="0"', "time"), (Context(until=NOW), 'gpu="0"', "host")],
)
def test_a_sample_without_time_or_host_is_refused(context: Context, labels: str, what: str) -> None:
    """A parser has no clock; the error says what to give."""
    with pytest.raises(ParseError, match=what):
        samples(metric("DCGM_FI_DEV_GPU_TEMP", labels=labels), context)


def test_foreign_metrics_and_comments_are_passed_by() -> None:
    """Of the exporter itself, of others."""
    page = '# HELP DCGM_FI_DEV_GPU_TEMP x\ngo_goroutines 12\nnpu_chip_info{id="0"} 1\n\n'
    assert samples(page, Context()) == []

"""dcgm-exporter's pages."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.formats.dcgm import BLANKS, FORMAT
from parsers.pages import devices_of
from parsers.text.parser import Context, ParseError, parse
from store.catalog_rows import rows
from store.records.event import Event
from store.records.telemetry import COUNTERS, GAUGES, Sample

NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
VENDORS = Path(__file__).parents[2] / ".." / "shared" / "data" / "vendors"
RENAMED = [row for row in rows("telemetry") if row["exporter"] == "dcgm" and row["also"]]


def metric(
    name: str, value: str = "61", labels: str = 'gpu="3",UUID="GPU-1",Hostname="gpu-017"', time: str = ""
) -> str:
    """One line of a page."""
    return f"{name}{{{labels}}} {value} {time}".rstrip()


def one(*lines: str, context: Context | None = None) -> Sample:
    """The one sample of some lines."""
    (sample,) = devices_of("\n".join(lines), context or Context(until=NOW))
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


@pytest.mark.parametrize("row", RENAMED, ids=lambda row: row["metric"])
def test_present_and_former_names_are_the_same_field(row: dict[str, str]) -> None:
    """DCGM renamed them, the exporter did not."""
    labels = 'gpu="3",UUID="GPU-1",Hostname="gpu-017",nvlink="2"'
    found = [one(metric(row[column].replace("*", "5"), "1", labels)).values for column in ("metric", "also")]
    assert found[0] == found[1]
    assert list(found[0]) == [row["name"].replace("{0}", "5").replace("{nvlink}", "2")]


def test_a_page_with_both_names_of_a_field_is_one_sample() -> None:
    """The first that comes has it."""
    lines = [metric("DCGM_FI_DEV_GPU_TEMP", "61"), metric("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "62")]
    assert one(*lines).values == {"gpu_temp_c": 61.0}


def test_an_archives_columns_are_in_the_table_by_the_same_names() -> None:
    """Two ways into the store, one vocabulary."""
    named = {
        row["metric"]: (row["name"], float(row["factor"])) for row in rows("telemetry") if row["exporter"] == "dcgm"
    }
    assert {field: named[field] for field in GAUGES} == dict(GAUGES)
    assert {field: named[field][0] for field in COUNTERS} == dict(COUNTERS)


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' tables (../shared/data/vendors) are not on this machine")
def test_names_and_blanks_agree_with_the_vendors_tables() -> None:
    """Every field that we use exists, by all the names that it has or had; every numeric blank is missing."""
    fields = list(csv.DictReader((VENDORS / "dcgm_fields.csv").read_text().splitlines()))
    present = {row["former_names"] or row["name"]: row["name"] if row["former_names"] else "" for row in fields}
    used = [row for row in rows("telemetry") if row["exporter"] == "dcgm"]
    for row in used:
        for link in ("0", "17") if "*" in row["metric"] else ("",):
            assert present[row["metric"].replace("*", link)] == row["also"].replace("*", link)
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
    assert [(sample.node, sample.gpu) for sample in devices_of(page, Context(until=NOW))] == [("a", 0), ("b", 0)]


def test_a_metric_that_comes_again_begins_the_next_sample() -> None:
    """Two scrapes in one file."""
    page = "\n".join(metric("DCGM_FI_DEV_GPU_TEMP", str(t)) for t in (61, 62))
    assert [sample.values for sample in devices_of(page, Context(until=NOW))] == [
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
        'DCGM_FI_PROF_SM_ACTIVE{gpu="3",UUID="GPU-1",Hostname="gpu-017"} N/A (no PMA)',
    ],
)
def test_a_page_cut_short_gives_what_was_whole(broken: str) -> None:
    """The parser counts the broken line, the page reader passes it by."""
    lines = [metric("DCGM_FI_DEV_GPU_TEMP"), broken]
    assert one(*lines).values == {"gpu_temp_c": 61.0}
    errors: list[int] = []
    events = list(parse(FORMAT.make(Context(until=NOW)), lines, lambda line, _error: errors.append(line)))
    assert (errors, [event.kind for event in events]) == ([2], ["telemetry"])


@pytest.mark.parametrize("labels", ['nvswitch="0",Hostname="a"', 'gpu="MIG-1",Hostname="a"', 'cpu="1",Hostname="a"'])
def test_what_is_no_gpus_metric_is_passed_by(labels: str) -> None:
    """Switches and CPUs."""
    found = devices_of(metric("DCGM_FI_DEV_GPU_TEMP", labels=labels), Context(until=NOW))
    assert [sample for sample in found if sample.type == "gpu"] == []


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
        devices_of(metric("DCGM_FI_DEV_GPU_TEMP", labels=labels), context)


def test_foreign_metrics_and_comments_are_passed_by() -> None:
    """Of the exporter itself, of others."""
    page = '# HELP DCGM_FI_DEV_GPU_TEMP x\ngo_goroutines 12\nnpu_chip_info{id="0"} 1\n\n'
    assert devices_of(page, Context()) == []


def test_a_gpu_without_its_index_is_told_by_its_device_file() -> None:
    """`device="nvidia3"`; a label that tells no GPU tells none."""
    assert one(metric("DCGM_FI_DEV_GPU_TEMP", labels='device="nvidia3",Hostname="a"')).gpu == 3
    page = metric("DCGM_FI_DEV_GPU_TEMP", labels='device="nvidiactl",Hostname="a"')
    assert devices_of(page, Context(until=NOW)) == []


def mig(name: str, value: str, instance: str = "") -> str:
    """A row of GPU 3, or of an instance of it."""
    return metric(name, value, f'gpu="3",UUID="GPU-1",GPU_I_ID="{instance}",GPU_I_PROFILE="1g.10gb",Hostname="gpu-017"')


@pytest.mark.parametrize("order", [1, -1])
def test_an_instances_row_never_replaces_the_gpus_own(order: int) -> None:
    """Whichever comes first."""
    lines = [mig("DCGM_FI_DEV_POWER_USAGE", "110", "7"), mig("DCGM_FI_DEV_POWER_USAGE", "333")]
    assert one(*lines[::order]).values == {"power_w": 333.0}


def test_what_is_an_instances_own_is_not_the_gpus() -> None:
    """Its utilization; a page of nothing else says nothing of the GPU."""
    rows_of = [mig("DCGM_FI_DEV_GPU_UTIL", "55", "7"), mig("DCGM_FI_DEV_GPU_TEMP", "51", "7")]
    assert one(*rows_of).values == {"gpu_temp_c": 51.0}
    assert devices_of(rows_of[0], Context(until=NOW)) == []


def switch_rows(*lines: str) -> list[Event]:
    """The events of a page."""
    return list(parse(FORMAT.make(Context(until=NOW)), lines))


@pytest.mark.parametrize("label", ["1", "nvswitch1"])
def test_a_switchs_counters_are_told_by_link(label: str) -> None:
    """One event per switch; a link's blank counter is missing."""
    lines = [
        metric("DCGM_FI_DEV_NVSWITCH_LINK_CRC_ERRORS", "5", f'nvlink="3",nvswitch="{label}",Hostname="a"'),
        metric(
            "DCGM_FI_DEV_NVSWITCH_LINK_CRC_ERROR_TOTAL", "2147483632", f'nvlink="4",nvswitch="{label}",Hostname="a"'
        ),
        metric("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", "0", f'nvswitch="{label}",gpu="0",Hostname="a"'),
    ]
    (event,) = switch_rows(*lines)
    assert (event.device.type, event.device.index, event.device.pci) == ("nvswitch", 1, None)
    assert event.attributes == {"link_crc_l3": 5.0, "sxid_fatal_last": 0.0}
    (sample,) = devices_of("\n".join(lines), Context(until=NOW))
    assert (sample.type, sample.gpu, sample.values) == ("nvswitch", 1, event.attributes)


def hints(*codes: str) -> list[tuple[int | None, str]]:
    """The hints of one GPU's scrapes."""
    lines = [
        metric("DCGM_FI_DEV_XID_ERRORS", code, time=str(1740801906000 + 30_000 * n)) for n, code in enumerate(codes)
    ]
    return [(event.code, event.severity) for event in switch_rows(*lines) if event.kind == "xid_hint"]


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        (("0", "79"), [79]),
        (("0", "79", "79", "79"), [79]),
        (("0", "79", "0", "79"), [79, 79]),
        (("31", "43"), [43]),
        (("79", "79"), []),
        (("79",), []),
        (("0", "9223372036854775794", "79"), [79]),
        (("79", "9223372036854775794", "79"), []),
        (("79", "0"), []),
    ],
)
def test_the_last_xid_is_read_as_changes(codes: tuple[str, ...], told: list[int]) -> None:
    """The gauge stays for weeks: what it showed first, and a value that is missing, are no change."""
    assert hints(*codes) == [(code, "info") for code in told]


def test_each_gpu_has_its_own_last_xid() -> None:
    """Of two nodes, of two GPUs."""
    times = (1740801906000, 1740801936000)
    lines = [
        metric("DCGM_FI_DEV_XID_ERRORS", str(code), f'gpu="{gpu}",Hostname="{node}"', str(time))
        for time, codes in zip(times, ((0, 13, 0), (0, 13, 48)), strict=True)
        for code, gpu, node in zip(codes, (0, 1, 0), ("a", "a", "b"), strict=True)
    ]
    found = [(event.node, event.device.index, event.code) for event in switch_rows(*lines) if event.kind == "xid_hint"]
    assert found == [("b", 0, 48)]

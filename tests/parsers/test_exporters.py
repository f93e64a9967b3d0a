"""Whose page it is, and what all pages share."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.formats import amd, cambricon, dcgm, npu
from parsers.pages import EXPORTERS, devices_of
from parsers.text.device_page import MAX_SERIES, Exporter, device_samples
from parsers.text.parser import Context
from store.catalog_rows import rows

FIXTURES = Path(__file__).parents[2] / "fixtures"
NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)
HERE = Context(node="n", until=NOW)
TABLE = list(rows("telemetry"))


@pytest.mark.parametrize(
    ("exporter", "page"),
    [
        (dcgm.EXPORTER, "dcgm/page.txt"),
        (npu.EXPORTER, "npu/two_scrapes.prom"),
        (amd.EXPORTER, "amd/page.prom"),
        (cambricon.EXPORTER, "cambricon/two_scrapes.prom"),
    ],
    ids=["dcgm", "npu", "amd", "cambricon"],
)
def test_the_exporter_is_found_by_its_metrics(exporter: Exporter, page: str) -> None:
    """Whichever wrote the page."""
    text = (FIXTURES / page).read_text()
    expected = device_samples((exporter,), text, HERE)
    assert expected
    assert devices_of(text, HERE) == expected


def test_a_proxys_page_holds_samples_of_several_exporters() -> None:
    """GPUs and NPUs of one page; foreign metrics are passed by."""
    lines = ['DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61', 'npu_chip_info_temperature{id="0"} 46', "go_goroutines 12", "up"]
    found = devices_of("\n".join(lines), HERE)
    assert [(sample.type, sample.gpu, sample.values) for sample in found] == [
        ("gpu", 0, {"gpu_temp_c": 61.0}),
        ("npu", 0, {"gpu_temp_c": 46.0}),
    ]


@pytest.mark.parametrize("exporter", [exporter.source for exporter in EXPORTERS])
@pytest.mark.parametrize("word", ["gpu_temp_c", "memory_temp_c", "power_w", "gpu_util_ratio", "ecc_sbe", "ecc_dbe"])
def test_every_accelerator_has_the_same_words_for_the_same_thing(exporter: str, word: str) -> None:
    """What roll-ups and counters are made of."""
    assert word in {row["name"] for row in rows("telemetry") if row["exporter"] == exporter}


def test_a_name_in_the_table_is_one_word_with_its_factor() -> None:
    """Named or left out, never half."""
    for row in TABLE:
        assert re.fullmatch(r"(?:[a-z0-9_]|\{[a-z0-9_]+\})*", row["name"]), row
        assert bool(row["name"]) == bool(row["factor"]), row
        assert row["how"] in ("", "max", "sum"), row
        assert row["per"] in ("", "instance"), row
        assert row["metric"].count("*") == row["also"].count("*") or not row["also"], row


def test_one_row_of_the_table_names_a_metric() -> None:
    """No exporter has one twice."""
    keys = [(row["exporter"], name) for row in TABLE for name in (row["metric"], row["also"]) if name]
    assert len(keys) == len(set(keys))


def test_a_device_of_endless_series_is_cut() -> None:
    """A broken page must not eat the memory."""
    labels = 'gpu_id="0",hostname="a",severity="fatal"'
    page = "\n".join(f'gpu_afid_errors{{{labels},afid_index="{n}"}} 1' for n in range(MAX_SERIES + 10))
    (sample,) = devices_of(page, HERE)
    assert len(sample.values) == MAX_SERIES

"""Which columns of a telemetry file are measures of devices, and what they are called."""

import pyarrow as pa
import pytest

from store.records.telemetry import COUNTERS, GAUGES, MAX_DEVICE_NAME
from store.telemetry.archive_table import other_columns
from store.telemetry.measures import measure_of


def schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    """A telemetry file's columns: time, node, gpu and these."""
    keys = (("time", pa.timestamp("us", tz="UTC")), ("node", pa.string()), ("gpu", pa.int8()))
    return pa.schema([*keys, *fields])


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(12, 3)], ids=lambda kind: str(kind)
)
def test_any_number_is_a_measure_under_its_own_name(kind: pa.DataType) -> None:
    """Of any width."""
    assert other_columns(schema(("smart_5", kind))) == ({"smart_5": ("smart_5", 1.0)}, ())


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.string(), pa.bool_(), pa.timestamp("us"), pa.duration("s"), pa.null(), pa.list_(pa.int32())),
        *(pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.int32())])),
    ],
    ids=lambda kind: str(kind).split("<")[0],
)
def test_what_is_no_number_is_passed_over_without_a_word(kind: pa.DataType) -> None:
    """Names, flags, times and lists are no measures; an archive may well have them."""
    assert other_columns(schema(("smart_5", kind))) == ({}, ())


def test_what_the_store_has_columns_and_events_of_is_not_told_twice() -> None:
    """Gauges and counters of ours stay where they are, and pandas' row numbers are nothing."""
    own = [(name, pa.float64()) for name in (*GAUGES, *COUNTERS, "__index_level_0__")]
    assert other_columns(schema(*own)) == ({}, ())


def test_a_field_that_the_catalogue_knows_bears_the_name_that_sidecars_give_it() -> None:
    """The same measure is the same series, live and archived; a new name of a known field too."""
    assert measure_of("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL") == ("ecc_sbe_lifetime", 1.0)
    assert measure_of("DCGM_FI_DEV_GPU_UTIL_RATIO") == ("gpu_util_ratio", 0.01)
    assert measure_of("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L3") == ("nvlink_crc_l3", 1.0)


def test_a_field_whose_name_needs_a_label_keeps_its_own() -> None:
    """A column bears no labels."""
    assert measure_of("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL") == (
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL",
        1.0,
    )


def test_columns_that_would_share_a_name_are_told_of() -> None:
    """The store's own column comes first, then the file's order; each other is a sentence with both names."""
    long = "x" * MAX_DEVICE_NAME
    measures, left_out = other_columns(
        schema(
            ("DCGM_FI_DEV_POWER_USAGE", pa.float32()),
            ("DCGM_FI_DEV_BOARD_POWER_WATTS", pa.float32()),
            (long + "1", pa.int32()),
            (long + "2", pa.int32()),
            ("twice", pa.int32()),
            ("twice", pa.int32()),
        )
    )
    assert measures == {long: (long + "1", 1.0)}
    assert [text.split(":")[0] for text in left_out] == [
        "column 'DCGM_FI_DEV_BOARD_POWER_WATTS'",
        f"column '{long}2'",
        "column 'twice'",
    ]


@pytest.mark.parametrize("name", ["", "a\x00b", "a\nb"], ids=["empty", "nul", "newline"])
def test_a_name_that_no_table_can_hold_is_told_of(name: str) -> None:
    """PostgreSQL's text holds no NUL, a page no line break."""
    measures, left_out = other_columns(schema((name, pa.int32())))
    assert measures == {}
    assert left_out == (f"column {name!r}: give it a name that can be printed",)

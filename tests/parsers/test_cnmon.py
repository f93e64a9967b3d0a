"""What cnmon shows of MLUs."""

import pytest

from parsers.formats.cnmon import FORMAT
from parsers.text.parser import Context, parse
from store.records.event import Event

FIRST = "| 1     /   MLU590-M9    v1.5.0 |         0000:53:00.0 | 97%                 0 |"
SECOND = "|  0%   64C        512 W/ 550 W | 70213 MiB/ 81920 MiB | FULL          Default |"


def read(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(FORMAT.make(Context(node="mlu-1")), lines))


def test_two_rows_are_the_reading_of_one_card() -> None:
    """By the words that GPUs have, at the time that stands above."""
    (event,) = read("Thu Dec 19 22:05:42 2024", FIRST, SECOND)
    assert (event.node, event.kind, event.device.type, event.device.index) == ("mlu-1", "accelerator_reading", "mlu", 1)
    assert (event.device.pci, event.time and event.time.isoformat()) == ("0000:53:00.0", "2024-12-19T22:05:42+00:00")
    assert event.attributes == {
        "model": "MLU590-M9",
        "ecc_error": 0,
        "gpu_temp_c": 64,
        "power_w": 512,
        "power_cap_w": 550,
        "memory_used_mb": 70213,
        "memory_mb": 81920,
    }


@pytest.mark.parametrize(
    "lines",
    [
        (SECOND,),
        (FIRST.replace("/ ", "2 ", 1), SECOND),
        ("|  1     0   41233   python                       70012 MiB |",),
        ("| Card  VF  Name       Firmware |               Bus-Id | Util        Ecc-Error |",),
    ],
)
def test_an_instance_and_a_process_are_no_card(lines: tuple[str, ...]) -> None:
    """Nor is the head of the table."""
    assert read(*lines) == []

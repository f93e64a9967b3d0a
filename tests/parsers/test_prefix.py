"""The prefix of a kernel line, form by form."""

from datetime import UTC, datetime

import pytest

from parsers.text.parser import Context
from parsers.text.prefix import LogRecord, PrefixReader, unescape
from parsers.text.stamp import Stamps

MESSAGE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
BOOT = datetime(2026, 11, 20, 21, 56, 37, 120_000, tzinfo=UTC)


def read(text: str) -> LogRecord:
    """One line, read by a fresh reader that knows the year and the boot time."""
    return PrefixReader(Stamps(Context(year=2026, boot_time=BOOT))).read(text)


@pytest.mark.parametrize(
    ("prefix", "time", "node"),
    [
        ("", None, None),
        ("               ", None, None),
        ("kernel: ", None, None),
        ("kernel: [123.456789] ", None, None),
        ("[...] ", None, None),
        ("<3>", None, None),
        ("11,8416,2122548539,-;", "22:31:59.668539", None),
        ("4,1227,2122548539,c,1,-;", "22:31:59.668539", None),
        ("[ 2122.548539] ", "22:31:59.668539", None),
        ("[ 2122.548539 <   30.795233>] ", "22:31:59.668539", None),
        ("<3>[ 2122.548539] ", "22:31:59.668539", None),
        ("[ 2122.548539] [ T1946] ", "22:31:59.668539", None),
        ("[ 2122.548539][ C12] ", "22:31:59.668539", None),
        ("user  :err   : [ 2122.548539] ", "22:31:59.668539", None),
        ("kern  :warn  : 2026-11-20T22:31:19,548539+00:00 ", "22:31:19.548539", None),
        ("2026-11-20T23:31:19,548539+01:00 ", "22:31:19.548539", None),
        ("[Fri Nov 20 22:31:19 2026] ", "22:31:19", None),
        ("[Nov20 22:31] ", "22:31:00", None),
        ("[2026-11-20 22:31:19.204051][5975154.721742] ", "22:31:19.204051", None),
        ("2026-11-20T22:31:54.121678901Z stderr F ", "22:31:54.121678", None),
        ("2026-11-20T22:31:54.121678901Z stdout F [ 2122.548539] ", "22:31:59.668539", None),
        ("2026-11-20T22:31:54.121678901Z stdout F Nov 20 22:31:19 vm kernel: ", "22:31:19", "vm"),
        ("2026-11-20T22:31:54.121678901Z ", "22:31:54.121678", None),
        ("[pod/dmesg-x7x/dmesg] [ 2122.548539] ", "22:31:59.668539", None),
        ("192.168.11.119: kern: warning: [2026-11-20T22:31:54.121678292Z]: ", "22:31:54.121678", "192.168.11.119"),
        ("Nov 20 22:31:54 vm kernel: ", "22:31:54", "vm"),
        ("Nov 20 22:31:54 vm kernel: [   35.455691] ", "22:31:54", "vm"),
        ("Nov 20 22:31:54.121678 vm kernel: ", "22:31:54.121678", "vm"),
        ("Nov 20 22:31:54 kernel: ", "22:31:54", None),
        ("Nov 20 22:31:54 ", "22:31:54", None),
        ("Nov 20 22:31:54  ", "22:31:54", None),
        ("<11>Nov 20 22:31:53 vm kernel: ", "22:31:53", "vm"),
        ("lis 20 22:31:54 testowy kernel: ", None, "testowy"),
        ("2026-11-20T22:31:54+0000 vm kernel: ", "22:31:54", "vm"),
        ("2026-11-20T22:31:54.121678+0000 vm kernel: ", "22:31:54.121678", "vm"),
        ("2026-11-20T22:31:54.121678Z gpu-017.example.org kernel: ", "22:31:54.121678", "gpu-017.example.org"),
        ("Fri 2026-11-20 22:31:54 UTC vm kernel: ", "22:31:54", "vm"),
        ("Fri 2026-11-20 22:31:54.121678 UTC vm kernel: ", "22:31:54.121678", "vm"),
        ("Sat 2026-11-21 00:01:54 +0130 vm kernel: ", "22:31:54", "vm"),
        ("Fri 2026-11-20 22:31:54 CET vm kernel[1]: ", "22:31:54", "vm"),
        ("1795213914.121678 vm kernel: ", "22:31:54.121678", "vm"),
        ("[ 2122.548539] vm kernel: ", "22:31:59.668539", "vm"),
        ("<11>1 2026-11-20T22:31:53.701163+00:00 vm kernel - - - ", "22:31:53.701163", "vm"),
        ("156 <11>1 2026-11-20T22:31:53.701163+00:00 vm kernel - - - ", "22:31:53.701163", "vm"),
        ('<11>1 2026-11-20T22:37:12+00:00 vm kernel - 1 [meta id="1\\]"][x y="2"] ', "22:37:12", "vm"),
        ("<11>1 - - kernel - - - \ufeff", None, None),
        ("192.168.11.119: kern: warning: [2026-11-20T22:31:51.261401334Z]: ", "22:31:51.261401", "192.168.11.119"),
    ],
)
def test_a_prefix_gives_time_and_host(prefix: str, time: str | None, node: str | None) -> None:
    """And leaves the message as the kernel wrote it."""
    record = read(prefix + MESSAGE)
    assert record.message == MESSAGE
    assert record.from_kernel()
    expected = None if time is None else datetime.fromisoformat(f"2026-11-20T{time}+00:00")
    assert (record.time, record.node) == (expected, node)


@pytest.mark.parametrize(
    "prefix",
    ["Nov 20 22:31:54 vm NVRM: ", "[ 2156.863044] vm NVRM: ", "2026-11-20T22:31:54+0000 vm NVRM: ", "NVRM: "],
)
def test_the_drivers_name_taken_for_a_tag_comes_back(prefix: str) -> None:
    """journald takes the first word of a record that was written by hand as its identifier."""
    record = read(prefix + MESSAGE.removeprefix("NVRM: "))
    assert record.message == MESSAGE
    assert record.from_kernel()


@pytest.mark.parametrize(
    "line",
    [
        f"Nov 20 22:31:54 vm nhc[123]: {MESSAGE}",
        f"2026-11-20T22:31:54+00:00 vm kubelet[1201]: {MESSAGE}",
        f"<11>1 2026-11-20T22:31:53Z vm dcgm-exporter 7 - - {MESSAGE}",
        f"Nov 20 22:31:54 vm python: RuntimeError: {MESSAGE}",
    ],
)
def test_a_program_that_quotes_the_kernel_is_not_the_kernel(line: str) -> None:
    """Its own tag stays."""
    assert not read(line).from_kernel()


def test_relative_times_add_up_from_the_last_minute_told() -> None:
    """dmesg --time-format reltime: before the first minute there is no time."""
    reader = PrefixReader(Stamps(Context(year=2026)))
    assert reader.read("[  +0.000080] info three").time is None
    assert reader.read("[Nov20 22:31] a").time == datetime(2026, 11, 20, 22, 31, tzinfo=UTC)
    assert reader.read("[  +0.500000] b").time == datetime(2026, 11, 20, 22, 31, 0, 500_000, tzinfo=UTC)
    assert reader.read("[ +30.250000] c").time == datetime(2026, 11, 20, 22, 31, 30, 750_000, tzinfo=UTC)


def test_a_repeated_message_counts_its_repeats() -> None:
    """rsyslog folds equal lines."""
    record = read(f"Nov 20 22:31:54 vm kernel: message repeated 3 times: [ {MESSAGE}]")
    assert (record.message, record.repeats) == (MESSAGE, 3)


def test_escapes_of_dev_kmsg_are_undone() -> None:
    """Bytes of UTF-8 where they can be; others are replaced."""
    assert unescape(r"two\x0alines caf\xc3\xa9 \x5c bad \xff") == "two\nlines café \\ bad \ufffd"
    assert unescape("plain é") == "plain é"
    assert unescape(r"\xzz") == r"\xzz"


def test_a_mellanox_line_of_dmesg_is_not_read_as_a_host() -> None:
    """`mlx5_core 0000:9c:00.0:` looks like a host and a tag."""
    record = read("[   18.617069] mlx5_core 0000:9c:00.0: 252.056 Gb/s available PCIe bandwidth")
    assert (record.node, record.tag) == (None, None)
    assert record.message.startswith("mlx5_core 0000:9c:00.0: ")


@pytest.mark.parametrize("prefix", ["[Nov 20 2026 22:31:54] [ERROR] [tid 841] ", "[Nov 20 2026 22:31:54] [WARNING] "])
def test_fabric_managers_own_file_names_its_program(prefix: str) -> None:
    """Its lines bear no tag, so that its sentences are never the kernel's."""
    record = read(f"{prefix}detected NVSwitch fatal error 20034")
    assert record == LogRecord(
        datetime(2026, 11, 20, 22, 31, 54, tzinfo=UTC), None, "nv-fabricmanager", "detected NVSwitch fatal error 20034"
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-20T22:31:54.121678901Z stdout F Nov 20 22:31:19 vm nhc[7]: ",
        "2026-11-20T22:31:54.121678901Z stdout F {nhc} ",
        "[pod/nhc/nhc] saw ",
        "2026-11-20T22:31:54.121678901Z gpu-017 nhc: ",
    ],
)
def test_a_program_in_a_container_that_quotes_the_kernel_is_not_it(prefix: str) -> None:
    """The line inside is read as any other."""
    record = read(prefix + MESSAGE)
    assert not record.from_kernel() or not record.message.startswith("NVRM")


@pytest.mark.parametrize("prefix", ["2026-11-20T22:31:54Z stderr F ", "2026-11-20T22:31:54Z <4>"])
def test_collectors_prefixes_are_taken_off_up_to_a_depth(prefix: str) -> None:
    """Three of them; a line of nothing else ends at once."""
    assert read(prefix * 3 + MESSAGE).message == MESSAGE
    assert read(prefix * 2500 + MESSAGE).message != MESSAGE

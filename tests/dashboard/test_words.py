"""How values are said."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dashboard.text import words
from dashboard.text import words as vocabulary
from wire.cluster import ClusterJson
from wire.events import DeviceJson, EventJson
from wire.verdicts import VerdictJson
from wire.words import verdicts
from wire.words.values import coded

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (0, "0 s"),
        (59.4, "59 s"),
        (59.9, "1 min"),
        (240, "4 min"),
        (3_569, "59 min"),
        (3_575, "1.0 h"),
        (5.25 * 3600, "5.2 h"),
        (30 * 3600, "30 h"),
        (10.86 * 86_400, "10.9 d"),
        (99.94 * 86_400, "99.9 d"),
        (99.96 * 86_400, "100 d"),
        (617.3 * 86_400, "617 d"),
    ],
)
def test_durations_are_said_in_the_unit_that_a_person_would_choose(seconds: float | None, said: str) -> None:
    """From seconds to days."""
    assert words.duration(seconds) == said


def test_times_are_relative_and_in_utc() -> None:
    """Both at once, with the date where it is not today's."""
    assert words.when(NOW - timedelta(minutes=3), NOW) == "3 min ago · 03:09:00"
    assert words.when(NOW - timedelta(days=4), NOW) == "4.0 d ago · Mar 25 03:12"
    assert words.when(NOW - timedelta(days=400), NOW) == "400 d ago · 2024-02-23 03:12"
    ahead = NOW + timedelta(hours=5)  # by another clock: what has happened is never told as still to come
    assert words.when(ahead, NOW) == "clock ahead · 08:12:00"
    assert words.ago(ahead, NOW) == "at 2025-03-29 08:12:00 UTC"
    assert words.due_at(ahead, NOW) == "in 5.0 h · 08:12:00 UTC"
    assert words.due(NOW - timedelta(minutes=3), NOW) == "3 min ago"
    assert words.duration(-1.0) == words.DASH
    assert words.when(NOW, NOW).startswith("just now")
    assert words.when(None, NOW) == words.ago(None, NOW) == words.utc(None) == "–"
    assert words.utc(NOW) == "2025-03-29 03:12:00 UTC"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0.0, "< 0.1 %"),
        (0.004, "0.4 %"),
        (0.31, "31 %"),
        (0.99, "99 %"),
        (0.999, "> 99 %"),
        (1.0, "> 99 %"),
    ],
)
def test_a_risk_is_never_said_to_be_nothing_or_certain(value: float | None, said: str) -> None:
    """A model does not know that much."""
    assert words.risk(value) == said


def test_shares_and_counts() -> None:
    """Per cent with a blank, thousands with a comma, a dash for what is not known."""
    assert (words.share(0.9314), words.share(None), words.share(0.95, 0)) == ("93.1 %", "–", "95 %")
    assert (words.count(12500), words.count(None)) == ("12,500", "–")
    assert (words.many(1, "node"), words.many(2, "node"), words.many(1200, "match", "matches")) == (
        "1 node",
        "2 nodes",
        "1,200 matches",
    )


@pytest.mark.parametrize(
    ("device", "said", "brief"),
    [
        (None, "–", "–"),
        (DeviceJson(), "whole node", "whole node"),
        (DeviceJson(type="gpu", pci="0000:0f:00.0", index=3), "GPU 3 (0000:0f:00.0)", "GPU 3"),
        (DeviceJson(type="gpu", pci="0000:0f:00.0"), "GPU 0000:0f:00.0", "GPU 0000:0f:00.0"),
        (DeviceJson(type="gpu", index=0), "GPU 0", "GPU 0"),
        (DeviceJson(type="port", uuid="0x248a", port=12), "port 12 of 0x248a", "port 12"),
        (DeviceJson(type="switch", uuid="0x248a"), "switch 0x248a", "switch 0x248a"),
        (
            DeviceJson(type="nvswitch", pci="0000:05:00.0", port=7),
            "NVSwitch link 7 (0000:05:00.0)",
            "NVSwitch link 7 (0000:05:00.0)",
        ),
        (DeviceJson(type="disk", uuid="sda"), "disk sda", "disk sda"),
    ],
)
def test_a_device_is_named_as_people_name_it(device: DeviceJson | None, said: str, brief: str) -> None:
    """In full, and where there is little room."""
    assert words.device(device) == said
    assert words.device(device, brief=True) == brief


@pytest.mark.parametrize(
    ("device", "name", "said", "brief"),
    [
        (DeviceJson(type="disk"), "nvme1", "disk nvme1", "disk nvme1"),
        (DeviceJson(type="disk", uuid="nvme1"), "nvme1", "disk nvme1", "disk nvme1"),
        (DeviceJson(type="dimm"), "P1-DIMMA1", "memory module P1-DIMMA1", "memory module P1-DIMMA1"),
        (
            DeviceJson(type="hca", pci="0000:ab:00.0"),
            "mlx5_5",
            "fabric adapter mlx5_5 (0000:ab:00.0)",
            "fabric adapter mlx5_5",
        ),
        (DeviceJson(type="hca", pci="0000:ab:00.0", port=1), "mlx5_5", "port 1 of mlx5_5", "port 1"),
        (DeviceJson(type="port", uuid="leaf11/swp51"), "swp51", "port leaf11/swp51", "port leaf11/swp51"),
        (DeviceJson(), "tsc", "whole node", "whole node"),
    ],
)
def test_a_device_that_has_a_name_is_called_by_it(device: DeviceJson, name: str, said: str, brief: str) -> None:
    """Two disks of a node are not confused; an address that holds the name says it already."""
    assert words.device(device, name=name) == said
    assert words.device(device, brief=True, name=name) == brief


def test_an_events_device_is_named_by_its_attributes() -> None:
    """A disk's or interface's name; a memory module's label."""
    assert words.name_of(EventJson(time=None, kind="nvme_lost", attributes={"name": "nvme0"})) == "nvme0"
    assert words.name_of(EventJson(time=None, kind="edac", attributes={"dimm": "P1-DIMMA1"})) == "P1-DIMMA1"
    assert words.name_of(EventJson(time=None, kind="xid", attributes={"pid": 7})) is None


def test_faults_and_actions_are_said_without_jargon() -> None:
    """A kind or action that is not known yet still reads as words."""
    assert words.what(EventJson(time=None, kind="xid", code=79, meaning="Driver lost it")) == "Xid 79, driver lost it"
    assert words.what(EventJson(time=None, kind="xid", code=999)) == "Xid 999"
    assert words.what(EventJson(time=None, kind="sxid", code=20034)) == "SXid 20034"
    assert (
        words.what(EventJson(time=None, kind="row_remap", meaning="Rows are to be remapped"))
        == "rows are to be remapped"
    )
    assert words.what(EventJson(time=None, kind="x", meaning="GPU memory errors")) == "GPU memory errors"
    assert words.what(EventJson(time=None, kind="x", meaning="A GPU is gone")) == "a GPU is gone"
    assert words.what(EventJson(time=None, kind="x", meaning="PCIe transfers")) == "PCIe transfers"
    assert words.what(EventJson(time=None, kind="some_new_kind")) == "some new kind"
    assert (words.action("reset_gpu"), words.action("do_a_dance")) == ("reset the GPU", "do a dance")
    assert (words.state("at_risk"), words.state("on_holiday")) == ("at risk", "on holiday")


def test_a_message_does_not_repeat_the_kind() -> None:
    """Counters that rose name themselves first."""
    assert (
        words.event_text(EventJson(time=None, kind="ecc_sbe", message="ecc_sbe rose by 13", meaning="Errors"))
        == "errors: rose by 13"
    )
    assert words.event_text(EventJson(time=None, kind="link_up")) == "link up"
    assert (
        words.event_text(EventJson(time=None, kind="link_up", message="A link is up", meaning="A link is up"))
        == "a link is up"
    )


def test_every_state_has_its_words_colour_mark_and_meaning() -> None:
    """A state added in one table is added in all."""
    for table in (vocabulary.STATE_COLOURS, vocabulary.STATE_MARKS, vocabulary.STATE_TINTS, vocabulary.STATE_MEANINGS):
        assert table.keys() == vocabulary.STATES.keys()


@given(some.text(max_size=200))
def test_no_markup_of_a_log_line_comes_to_life(text: str) -> None:
    """Every character that Markdown reads is escaped, and no line break is left."""
    safe = words.plain(text)
    assert "\n" not in safe
    stripped = safe
    for character in "\\`*_{}[]()#+-.!|<>~$:&":
        stripped = stripped.replace(f"\\{character}", "")
    assert not set(stripped) & set("\\`*_{}[]()#+-.!|<>~$:&")


def cluster(**changes: object) -> ClusterJson:
    """A cluster of 64 nodes."""
    return ClusterJson(now=NOW, nodes=64, **changes)  # type: ignore[arg-type]  # a test's shorthand


def test_the_headline_is_the_answer() -> None:
    """How many nodes are how bad, the worst first, and the run's goodput."""
    level, text = words.headline(
        cluster(states={"ok": 60, "at_risk": 2, "faulty": 1, "out": 1}, run="llm-70b", goodput=0.931, target=0.95)
    )
    assert level == "error"
    assert text.replace("\\", "") == (
        "1 node faulty, 1 out of service, 2 at risk; run llm-70b at 93.1 % goodput, target 95 %."
    )


def test_the_headline_of_a_well_cluster_says_so() -> None:
    """No run, no goodput; with one below its target it is a warning."""
    assert words.headline(cluster(states={"ok": 64})) == ("success", "All 64 nodes are well.")
    below = cluster(states={"ok": 64}, run="r", goodput=0.5, target=0.95)
    assert words.headline(below) == ("warning", "All 64 nodes are well; run r at 50.0 % goodput, target 95 %.")
    assert words.headline(cluster(states={"at_risk": 2, "ok": 62}))[0] == "warning"


def test_the_headline_of_an_empty_cluster_says_what_to_do() -> None:
    """No node is known."""
    level, text = words.headline(ClusterJson(now=NOW))
    assert level == "info"
    assert "foreshock sidecar" in text


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("ascend_fault", 0x80818C00, "fault 80818C00, the NPU is lost for work"),
        ("mlu_xid", 14, "MLU Xid 14, the NPU is lost for work"),
        ("gpu_afid", 18, "AFID 18, the NPU is lost for work"),
        ("xid", 79, "Xid 79, the NPU is lost for work"),
    ],
)
def test_a_code_is_said_as_its_maker_writes_it(kind: str, code: int, said: str) -> None:
    """An operator looks for it in the maker's manual."""
    assert coded(kind, code, "The NPU is lost for work") == said


@pytest.mark.parametrize(
    ("device", "called", "to_do"),
    [
        ("gpu", "GPU 2 of n1", "reset the GPU"),
        ("npu", "NPU 2 of n1", "reset the NPU"),
        ("mlu", "MLU 2 of n1", "reset the MLU"),
    ],
)
def test_a_verdict_calls_an_accelerator_as_its_maker_does(device: str, called: str, to_do: str) -> None:
    """And asks for no reset of a GPU where there is none."""
    verdict = VerdictJson(
        id="v",
        rank=1,
        probability=0.9,
        cause_class="gpu",
        name="n1/gpu2",
        node="n1",
        since=NOW,
        action="reset_gpu",
        device=DeviceJson(type=device, index=2),
    )
    assert (verdicts.title(verdict), verdicts.to_do(verdict)) == (called, to_do)
    assert words.device(DeviceJson(type=device, index=2)) == called.removesuffix(" of n1")


@pytest.mark.parametrize(
    ("device", "reason", "called"),
    [
        ("gpu", "5 more NVLink CRC errors", "NVLink 2 of n1"),
        ("gpu", "XGMI PCS DataLossErr detected", "XGMI 2 of n1"),
        ("npu", "4 more link CRC errors on link 3", "HCCS of NPU 2 of n1"),
        ("mlu", "9 more link CRC-32 errors on link 1", "MLU-Link of MLU 2 of n1"),
    ],
)
def test_a_link_between_accelerators_is_called_as_its_maker_does(device: str, reason: str, called: str) -> None:
    """NVIDIA's name is for NVIDIA's."""
    of, where = DeviceJson(type=device, index=2), "n1/gpu2"
    verdict = VerdictJson(
        id="v",
        rank=1,
        probability=0.9,
        cause_class="nvlink",
        name=where,
        node="n1",
        since=NOW,
        reason=reason,
        device=of,
    )
    assert verdicts.title(verdict) == called

"""AMD's GPU driver's messages."""

import csv
from pathlib import Path

import pytest

from parsers.kernel_messages.families.accelerators import AMDGPU, decode_amdgpu
from store.records.event import Event

VENDORS = Path(__file__).parents[3] / ".." / "shared" / "data" / "vendors"
AT = "amdgpu 0000:0B:00.0: amdgpu: "


def told(text: str, head: str = AT) -> Event:
    """The event of a message, which the scan finds too."""
    event = decode_amdgpu(head + text)
    assert event is not None
    assert any(sign in head + text for sign in AMDGPU.signs)
    return event


@pytest.mark.parametrize("sequence", ["", "{41} ", "{41}"])
@pytest.mark.parametrize("head", [AT, "amdgpu 0000:0b:00.0: "])
@pytest.mark.parametrize(
    ("what", "severity"), [("correctable", "info"), ("uncorrectable", "error"), ("deferred", "warning")]
)
def test_a_count_of_memory_errors_is_told_with_its_block(what: str, severity: str, head: str, sequence: str) -> None:
    """Of old and new drivers."""
    event = told(f"{sequence}3 {what} hardware errors detected in umc block, no user action is needed.", head)
    assert (event.kind, event.severity, event.device.pci) == ("gpu_ras", severity, "0000:0b:00.0")
    assert event.attributes == {"count": 3, "block": "umc"}


@pytest.mark.parametrize("comma", ["", ","])
def test_new_errors_are_told_with_their_chiplet(comma: str) -> None:
    """The driver forgot a comma once."""
    event = told(f"socket: 4, die: 1{comma} 2 new uncorrectable hardware errors detected in xgmi_wafl block")
    assert event.attributes == {"socket": 4, "die": 1, "count": 2, "block": "xgmi_wafl"}


@pytest.mark.parametrize(
    "text",
    [
        "no uncorrectable hardware errors detected in umc block",
        "no correctable hardware errors detected in umc block",
        "1048560 correctable hardware errors detected in umc block",
        "0 correctable hardware errors detected in umc block",
        "{41} socket: 0, die: 1, 9 uncorrectable hardware errors detected in total in umc block",
        "socket: 0, die: 0, 8 correctable hardware errors detected in total in umc block, no user action is needed",
        "GPU reset succeeded, trying to resume",
        "  in page starting at address 0x00003e6ca840e000 from client 18",
        "RAS: optional ras ta ucode is not available",
        "ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
        "SMU is initialized successfully!",
        "SMU: unknown command: index:1 param:0x00000000 message:x",
        "VRAM: 196592M 0x0000008000000000 - 0x000000AFFEFFFFFF (196592M used)",
        "XGMI: Add node 1, hive 0xba4f1e35fc9c08cf.",
        "Using 1 valid bigger bad page threshold",
    ],
)
def test_what_tells_no_fault_gives_none(text: str) -> None:
    """The all-clear, totals, a register that nobody filled, progress, the driver's start."""
    assert decode_amdgpu(AT + text) is None


@pytest.mark.parametrize(
    ("text", "kind", "severity", "attributes"),
    [
        ("{15}Poison is created", "gpu_ras", "warning", {}),
        ("{3} RAS poison is created, no user action is needed.", "gpu_ras", "warning", {}),
        ("{16}poison is consumed by client 12, kick off gpu reset flow", "gpu_ras", "error", {"client": 12}),
        (
            "RAS poison consumption, fall back to gpu reset flow: client id 27",
            "gpu_ras",
            "error",
            {"client": 27},
        ),
        ("GPU reset for GFX RAS poison consumption is issued!", "gpu_ras", "error", {"block": "GFX"}),
        (
            "socket: 0, die: 1, 2 new poison consumption detected in gfx block",
            "gpu_ras",
            "error",
            {"socket": 0, "die": 1, "count": 2, "block": "gfx"},
        ),
        ("uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "gpu_ras", "fatal", {}),
        ("Saved bad pages 128 reaches threshold value 128", "gpu_bad_pages", "error", {"count": 128, "limit": 128}),
        ("Saved bad pages(9) reaches threshold value(9).", "gpu_bad_pages", "error", {"count": 9, "limit": 9}),
        ("RAS records:120 exceeds 90% of threshold:128", "gpu_bad_pages", "warning", {"count": 120, "limit": 128}),
        ("RAS records:130 exceed threshold:128", "gpu_bad_pages", "error", {"count": 130, "limit": 128}),
        (
            "RAS records:130 exceed threshold:128, GPU will not be initialized. Replace this GPU or increase the threshold",  # noqa: E501  # one real line
            "gpu_bad_pages",
            "fatal",
            {"count": 130, "limit": 128},
        ),
        ("GPU reset begin!", "gpu_reset", "warning", {}),
        ("GPU reset begin!. Source:  4", "gpu_reset", "warning", {"reset_source": 4}),
        ("GPU reset(2) succeeded!", "gpu_reset", "info", {"count": 2}),
        ("GPU reset(2) failed", "gpu_reset", "fatal", {"count": 2}),
        ("GPU reset(2) failed with error -62 ", "gpu_reset", "fatal", {"count": 2}),
        ("GPU reset end with ret = -19", "gpu_reset", "fatal", {"error": -19}),
        ("Mode2 reset failed!", "gpu_reset", "fatal", {}),
        ("ring sdma0 timeout, signaled seq=3400, emitted seq=3401", "gpu_ring_timeout", "error", {"ring": "sdma0"}),
        ("ring comp_1.0.0 timeout, but soft recovered", "gpu_ring_timeout", "warning", {"ring": "comp_1.0.0"}),
        ("XGMI PCS BERExceededErr detected", "xgmi_error", "error", {"error_name": "XGMI PCS BERExceededErr"}),
        ("WAFL PCS CRCErr detected", "xgmi_error", "error", {"error_name": "WAFL PCS CRCErr"}),
        ("SMU: I'm not done with your previous command!", "gpu_smu_hang", "error", {}),
        ("SMU: response:0xFFFFFFFF for index:18 param:0x00000005 message:x?", "gpu_smu_hang", "error", {}),
        ("ERROR: GPU over temperature range(SW CTF) detected!", "gpu_over_temperature", "error", {}),
        ("ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!", "gpu_over_temperature", "fatal", {}),
        ("ERROR: System is going to shutdown due to GPU SW CTF!", "gpu_over_temperature", "fatal", {}),
        ("WARN: GPU is throttled, expect performance decrease.", "gpu_throttled", "warning", {}),
        ("device lost from bus!", "gpu_lost", "fatal", {}),
        ("Fatal error during GPU init", "gpu_init_failure", "error", {}),
        ("qcm fence wait loop timeout expired", "gpu_queue_hang", "error", {}),
        ("MES failed to respond to msg=MISC (WAIT_REG_MEM)", "gpu_queue_hang", "error", {}),
        ("MES(0) ring buffer is full.", "gpu_queue_hang", "error", {}),
    ],
)
def test_each_fault_of_the_driver_is_told(text: str, kind: str, severity: str, attributes: dict[str, object]) -> None:
    """By its kind, with its numbers."""
    event = told(text)
    assert (event.kind, event.severity, event.attributes) == (kind, severity, attributes)
    assert event.device.pci == "0000:0b:00.0"


@pytest.mark.parametrize(
    ("message", "pci"),
    [
        ("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2", None),
        (
            "amdgpu 0000:03:00.0: [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1",
            "0000:03:00.0",
        ),
        ("amdgpu: qcm fence wait loop timeout expired", None),
        ("kfd kfd: amdgpu: qcm fence wait loop timeout expired", None),
        ("amdgpu: probe of 0000:03:00.0 failed with error -22", "0000:03:00.0"),
        ("amdgpu 0000:03:00.0: probe with driver amdgpu failed with error -22", "0000:03:00.0"),
    ],
)
def test_the_driver_is_known_by_any_of_its_heads(message: str, pci: str | None) -> None:
    """drm's, kfd's, the bus's."""
    event = told(message, head="")
    assert event.device.pci == pci


@pytest.mark.parametrize(
    "message",
    [
        "[drm:radeon_job] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2",
        "i915 0000:00:02.0: GPU reset begin!",
        "nouveau 0000:01:00.0: device lost from bus!",
        "probe of 0000:03:00.0 failed with error -22",
        "GPU reset begin!",
    ],
)
def test_another_drivers_message_is_not_taken_for_amds(message: str) -> None:
    """The same words of other drivers."""
    assert decode_amdgpu(message) is None


@pytest.mark.parametrize(
    ("vmid", "cause", "pid"), [(8, "application", 4381), (0, "driver", 0)], ids=["a program's", "the driver's"]
)
def test_a_page_fault_names_its_program(vmid: int, cause: str, pid: int) -> None:
    """Names may hold blanks; VMID 0 is the driver's own."""
    event = told(
        f"[gfxhub0] no-retry page fault (src_id:0 ring:157 vmid:{vmid} pasid:32777, for process python 3 pid {pid} "
        f"thread python pid {pid})"
    )
    expected = {"hub": "gfxhub0", "vmid": vmid, "process": "python 3"} | ({"pid": pid} if pid else {})
    assert (event.kind, event.cause, event.attributes) == ("gpu_page_fault", cause, expected)


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' lines (../shared/data/vendors) are not on this machine")
def test_the_vendors_lines_are_read_as_they_say() -> None:
    """Quoted lines and a format of the driver."""
    rows = list(csv.DictReader((VENDORS / "amd_ras_lines.tsv").read_text().splitlines(), delimiter="\t"))
    assert [row["fault"] for row in rows] == ["no", "bogus", "yes"]
    for row in rows:
        line = row["line"]
        for word in ("41", "0", "1", "3", "umc"):
            for slot in ("%llu", "%d", "%u", "%s"):
                if slot in line:
                    line = line.replace(slot, word, 1)
                    break
        head = "" if line.startswith("amdgpu") else AT
        assert (decode_amdgpu(head + line) is not None) == (row["fault"] == "yes")


def test_a_count_that_no_record_holds_is_no_fault() -> None:
    """A damaged number: a count has 18 digits at most."""
    line = "amdgpu 0000:0b:00.0: amdgpu: {} correctable hardware errors detected in umc block"
    counts = [AMDGPU.decode(line.format(number)) for number in ("9" * 18, "9" * 20)]
    assert counts[0] is not None
    assert counts[0].attributes["count"] == 10**18 - 1
    assert counts[1] is None

"""The Ascend driver's messages."""

import pytest

from parsers.kernel_messages.families.accelerators import ASCEND, decode_ascend

HEAD = "[ascend] [ERROR] [tsdrv] [tsdrv_hb_cq_callback 319] <swapper/30:0> "


@pytest.mark.parametrize(
    ("text", "index", "code", "severity", "action"),
    [
        (
            "receive ts exception msg, call excep_code=0xb4060007, time=1s, devid=1 tsid=0",
            1,
            "B4060007",
            "error",
            "restart_app",
        ),
        (
            "[devid-0][tsid-0] before shift, call mntn_system_error: 0xa6060fff,  time: 1.2",
            0,
            "A6060FFF",
            "error",
            "reset_gpu",
        ),
        ("receive ts exception msg, call excep_code=0x12345678, devid=2", 2, "12345678", "warning", "run_diagnostics"),
        ("receive ts exception msg, call excep_code=0x8f180200", None, "8F180200", "fatal", "drain_node"),
    ],
)
def test_an_exception_is_judged_by_its_code(
    text: str, index: int | None, code: str, severity: str, action: str
) -> None:
    """Unknown codes are kept."""
    event = decode_ascend(HEAD + text)
    assert event is not None
    assert any(sign in HEAD + text for sign in ASCEND.signs)
    assert (event.kind, event.code, event.attributes["fault_code"]) == ("ascend_fault", int(code, 16), code)
    assert (event.device.type, event.device.index, event.severity, event.action) == ("npu", index, severity, action)


def test_a_device_that_the_driver_cannot_talk_to_is_told() -> None:
    """With its number; older drivers print no level."""
    text = (
        "[ascend] [drv_pcie] [devdrv_send 1239] <kworker/u385:0:15232:15232> Device is abnormal. (dev_id=5; msg_type=3)"
    )
    event = decode_ascend(text)
    assert event is not None
    assert any(sign in text for sign in ASCEND.signs)
    assert (event.kind, event.device.index, event.severity) == ("npu_abnormal", 5, "error")


@pytest.mark.parametrize(
    "message",
    [
        "[ascend] [ERROR] [drv_pcie] [devdrv_record_sq_err_ptr 177] <kworker/32:0:29177:29177> the sq read err ptr is: 0",  # noqa: E501  # one real line
        "[ascend] [devdrv] [devdrv_refresh_aicore_info_work 322] <kworker/u385:0:15232> send_msg unsuccessful. (ret=-19)",  # noqa: E501  # one real line
        HEAD + "excep_code=0x",
        "usb 1-1: call excep_code=0xb4060007",
        "Device is abnormal. (dev_id=5)",
        "[ascend] [ERROR] Device is abnormal",
    ],
)
def test_steps_of_a_fault_and_others_messages_give_none(message: str) -> None:
    """Pointers, registers; the words without the driver's head."""
    assert decode_ascend(message) is None

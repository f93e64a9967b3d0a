"""A kernel message is the same event in whatever form a reader printed it, and none where another program quotes it."""

import json
from collections.abc import Callable

import pytest

from parsers.formats.kernel import KernelParser
from parsers.text.parser import Context, parse
from store.records.event import Event

Form = Callable[[str], str]

MESSAGES = [
    "NVRM: Xid (PCI:0000:66:00): 999, pid=1234, name=test",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:01): 31, pid=9, name=a b, Ch 00000008, intr 00000000. MMU Fault: ENGINE CE0",
    "NVRM: Xid (0000:03:00): 14, Channel 00000001",
    "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)",
    "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
    "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.",
    "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 0 error 4 in libnccl.so.2[7f7+d3d]",
]
NOT_MESSAGES = [
    "NVRM: Xid (PCI:0000:65:00): invalid",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03",
    "NVRM: GPU Board Serial Number: 1650124014249",
    "nvidia-nvswitch2: open (major=510)",
    "r8169 0000:02:00.0 eth0: RTL8168h/8111h, 40:b0:34:fb:e8:5a, XID 541, IRQ 133",
    'audit: type=1400 comm="nvidia-smi" name="Xid (PCI:0000:04:00)" denied_mask="r"',
    "- NVRM: Xid (PCI:0000:01:00): 79, an example",
    "# NVRM: Xid (PCI:0000:01:00): 79, an example",
]
TIME = "2026-11-20T22:31:54"
BSD = "Nov 20 22:31:54"


def prefixed(prefix: str) -> Form:
    """The form that puts this before a message."""
    return lambda message: prefix + message


def in_object(**fields: object) -> Form:
    """The form of an object that holds the message where a field is `{}`."""
    return lambda message: json.dumps(
        {name: value.replace("{}", message) if isinstance(value, str) else value for name, value in fields.items()}
    )


def exported(message: str) -> str:
    """`journalctl -o export`."""
    head = "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1795213914121678\n_HOSTNAME=gpu-1\n"
    return f"{head}SYSLOG_IDENTIFIER=kernel\nMESSAGE={message}\n"


# A form, the host it names, whether it names the time.
FORMS: list[tuple[Form, str | None, bool]] = [
    (prefixed("   "), None, False),
    (prefixed("\t\t"), None, False),
    (lambda message: f"{message}  \r", None, False),
    (prefixed("[123] "), None, False),
    (prefixed("[  130.456250][    C1] "), None, False),
    (prefixed("[…] "), None, False),
    (prefixed("[12345.678] kernel: "), None, False),
    (prefixed("kern  :err   : [Fri Nov 20 22:31:54 2026] "), None, True),
    (prefixed("[Fri Nov 20 22:31:54 2026] gpu-1 kernel: "), "gpu-1", True),
    (prefixed("[Fr Nov 20 22:31:54 2026] "), None, True),
    (prefixed("[ven. nov. 20 22:31:54 2026] "), None, True),
    (prefixed("[金 11月 20 22:31:54 2026] "), None, True),
    (prefixed("4,1227,437812449932,-,caller=T1946;"), None, False),
    (prefixed("4,1227,437812449932;"), None, False),
    (prefixed("gpu-1 kernel: "), "gpu-1", False),
    (prefixed(" gpu-1 kernel: [  123.456789] "), "gpu-1", False),
    (prefixed(f"{BSD} gpu-1 kernel: "), "gpu-1", True),
    (prefixed(f"     {BSD} gpu-1 kernel: "), "gpu-1", True),
    (prefixed("      [  123.456789] "), None, False),
    (prefixed(f"{BSD} gpu-1 kern.warn kernel: [  123.456789] "), "gpu-1", True),
    (prefixed("11月 20 22:31:54 gpu-1 kernel: "), "gpu-1", True),
    (prefixed("11월 20 22:31:54 gpu-1 kernel: "), "gpu-1", True),
    (prefixed("nov. 20 22:31:54 gpu-1 kernel: "), "gpu-1", True),
    (prefixed("Nov 20 2026 22:31:54 gpu-1 kernel: "), "gpu-1", True),
    (prefixed("2026 Nov 20 22:31:54 gpu-1 kernel: [  123.456789] "), "gpu-1", True),
    (prefixed("Fri Nov 20 22:31:54 2026 kern.info kernel: [   16.570126] "), None, True),
    (prefixed(f"{TIME}.123456789Z [123.456789] "), None, True),
    (prefixed(f"{TIME}.123456789Z {BSD} gpu-1 kernel: "), "gpu-1", True),
    (prefixed(f"{TIME}.123456789Z 4,1227,437812449932,-;"), None, True),
    (prefixed(f"{TIME}.123456789Z <4>[  123.456789] "), None, True),
    (in_object(log="[  123.456789] {}\n", stream="stdout", time=f"{TIME}.1Z"), None, True),
    (in_object(msg=" {}", timereported=f"{TIME}+00:00", hostname="gpu-1", syslogtag="kernel:"), "gpu-1", True),
    (exported, "gpu-1", True),
]
QUOTATIONS: list[Form] = [
    prefixed(f"{BSD} gpu-1 gpud[4242]: "),
    prefixed(f"{BSD} gpu-1 gpud[4242]: found these:\n                                  "),
    prefixed(f"{BSD} gpu-1 gpud[4242]: found these:\n     {BSD} gpu-1 kernel: "),
    prefixed(f"{BSD} gpu-1 sudo[9]: root : COMMAND=/bin/echo "),
    prefixed(f"{TIME}.123Z WARN xid_monitor: "),
    prefixed("2026-11-20 22:31:54,123 - WARNING - "),
    prefixed("I1120 22:31:54.000001       1 log_monitor.go:160] New status generated: "),
    prefixed("RuntimeError: "),
    prefixed("/var/log/messages:"),
    prefixed("> "),
    prefixed("- "),
    lambda message: f'  - message: "{message}"',
    lambda message: f"$ grep '{message}' /var/log/messages",
    in_object(SYSLOG_IDENTIFIER="dcgm-exporter", _HOSTNAME="gpu-1", MESSAGE="{}"),
    in_object(level="warn", msg="{}", ident="nvsentinel"),
]


def decode(text: str) -> list[Event]:
    """The events of a text's lines."""
    return list(parse(KernelParser(Context(year=2026)), text.split("\n")))


def what(event: Event) -> tuple[object, ...]:
    """All of an event but when and where it was told."""
    return (event.kind, event.code, event.severity, event.action, event.device, event.attributes, event.message)


@pytest.mark.parametrize(("form", "node", "timed"), FORMS, ids=[form("X")[:40] for form, _node, _timed in FORMS])
def test_a_message_is_the_same_event_in_every_form(form: Form, node: str | None, timed: bool) -> None:
    """With the host and the time that the form names."""
    for message in MESSAGES:
        (bare,) = decode(message)
        (event,) = decode(form(message))
        assert what(event) == what(bare)
        assert event.node == node
        assert str(event.time)[:19] == (TIME.replace("T", " ") if timed else "None")


@pytest.mark.parametrize(
    "form", [form for form, _node, _timed in FORMS], ids=[form("X")[:40] for form, _n, _t in FORMS]
)
def test_what_is_no_fault_is_none_in_every_form(form: Form) -> None:
    """Neither the driver's chatter nor another driver's numbers."""
    for message in NOT_MESSAGES:
        assert decode(form(message)) == []


@pytest.mark.parametrize("form", QUOTATIONS, ids=[form("X")[:40] for form in QUOTATIONS])
def test_a_quotation_is_no_event(form: Form) -> None:
    """Whoever quotes: the kernel has said it already."""
    for message in MESSAGES:
        assert decode(form(message)) == []


def test_two_messages_that_a_console_wrote_at_once_are_two_events() -> None:
    """On one line, with or without a blank between them."""
    first, other = "NVRM: Xid (PCI:0000:3b:00): 43, pid=5, name=a, Ch 00000008", MESSAGES[4]
    for gap in ("", " "):
        events = decode(f"[   1.0] {first}{gap}{first.replace('3b', '3c')}{gap}{other}")
        assert [(event.code, event.device.pci) for event in events] == [
            (43, "0000:3b:00.0"),
            (43, "0000:3c:00.0"),
            (24007, "0000:c3:00.0"),
        ]
        assert events[0].message == "Ch 00000008"
    assert decode(f'[   1.0] audit: comm="{first}" {first}') == []


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_cut_anywhere_is_at_most_the_same_kind(message: str) -> None:
    """A full disk or a lost packet invents no other fault."""
    (whole,) = decode(message)
    for end in range(len(message)):
        assert {event.kind for event in decode(message[:end])} <= {whole.kind}

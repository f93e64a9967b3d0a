"""Logs of Ascend NPUs."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from parsers.formats.ascend import FORMAT, MAX_RECORDS
from parsers.text.parser import Context, parse
from store.records.event import Event

VENDORS = Path(__file__).parents[2] / ".." / "shared" / "data" / "vendors"
TIME = "2025-03-01-04:05:06.789.123"
WHEN = datetime(2025, 3, 1, 4, 5, 6, 789123, tzinfo=UTC)
AGENT = "[INFO]     2025/03/01 04:05:06.789123 17      device/ascendcommon.go:812    "


def read(*lines: str, context: Context | None = None) -> list[Event]:
    """The events of some lines; none is broken."""
    errors: list[str] = []
    events = list(parse(FORMAT.make(context or Context(node="npu-7")), lines, lambda _n, e: errors.append(str(e))))
    assert errors == []
    return events


def one(*lines: str) -> Event:
    """The one event of some lines."""
    (event,) = read(*lines)
    assert (event.source, event.node) == ("ascend", "npu-7")
    return event


def cann(module: str, text: str, level: str = "ERROR", who: str = "413,python") -> str:
    """A record of CANN's."""
    return f"[{level}] {module}({who}):{TIME} {text}"


def test_a_record_bears_its_time_and_its_writer() -> None:
    """To the microsecond; in the context's zone."""
    line = cann("RUNTIME", "[stars_engine.cc:1551]6219 ProcLogicCqReport:Task run failed, device_id=3, stream_id=2")
    event = one(line)
    assert (event.time, event.kind, event.device.type, event.device.index) == (WHEN, "npu_task_failed", "npu", 3)
    assert event.attributes == {"module": "RUNTIME", "pid": 413, "process": "python"}
    assert event.message.startswith("ProcLogicCqReport:")
    (east,) = read(line, context=Context(zone=timezone(timedelta(hours=8))))
    assert east.time == WHEN - timedelta(hours=8)


@pytest.mark.parametrize("who", ["-1,null", "-2,IMP", "0,None"])
def test_firmware_has_no_process(who: str) -> None:
    """Its number is negative."""
    line = cann(
        "TSCH", "11 (dieid:0,cpuid:0) hwts_plat.c:1931 f: RTS_HWTS: hwts timeout exception bitmap=0x8000", who=who
    )
    assert one(line).attributes == {"module": "TSCH", "bitmap": "0x8000"}


@pytest.mark.parametrize(
    ("module", "text", "kind", "index", "told"),
    [
        ("RUNTIME", "[d.cc:1]9 F:The error from device(0), serial number is 1. there is a sdma error, x", "npu_sdma_error", 0, {}),  # noqa: E501  # one real line
        (
            "RUNTIME",
            "[d.cc:1]9 F:The error from device(chipId:3, dieId:0), serial number is 6, there is an exception of aivec error, "  # noqa: E501  # one real line
            "core id is 2, error code = 0x800000, dump info",
            "npu_core_error",
            3,
            {"unit": "aivec", "core": 2, "error_code": "0x800000"},
        ),
        (
            "RUNTIME",
            "[d.cc:1]9 F:The error from device(1), serial number is 1, there is an exception of fftsplus aicore error, core id is 7, "  # noqa: E501  # one real line
            "error code = 0, x",
            "npu_core_error",
            1,
            {"unit": "aicore", "core": 7, "error_code": "0"},
        ),
        ("RUNTIME", "[n.cc:1]9 F:[drv api] halMemAlloc failed:size=1(Byte), device_id=6!", "npu_out_of_memory", 6, {}),
        ("RUNTIME", "[a.cc:1]9 F:ErrCode=507051, desc=[hdc send msg fail], InnerCode=0x7110013", "npu_channel_failed", None, {}),  # noqa: E501  # one real line
        ("RUNTIME", "[a.cc:1]9 ReportSocketCloseProc: Device 2, DEV_RUNNING_DOWN, device_id=2", "npu_lost", 2, {}),
        ("HCCL", "[h.cc:1][1][2][Heartbeat]cqe err status[12], time:[x], ip:[10.0.0.2]", "hccl_cqe_error", None, {"status": 12, "peer": "10.0.0.2"}),  # noqa: E501  # one real line
        ("HCCL", "[t.cc:1][1]server:10.0.0.2/5, server:10.0.0.2/1, Heartbeat Lost Occurred", "hccl_heartbeat_lost", None, {"peer": "10.0.0.2", "peer_device": 5}),  # noqa: E501  # one real line
        (
            "HCCL",
            "[t.cc:610][8][TaskExecStage][HeartbeatAbnormal]Cluster Exception Location[IP/ID]:[10.0.0.2/1], Arrival Time:[Thu Oct "  # noqa: E501  # one real line
            "23 17:25:58 2025], Discoverer:[10.0.0.1/2], ExceptionType:[Heartbeat Lost Occurred], Possible Reason:1. Process has exited",  # noqa: E501  # one real line
            "hccl_heartbeat_lost",
            None,
            {"peer": "10.0.0.2", "peer_device": 1, "ip": "10.0.0.1"},
        ),
        ("HCCL", "[t.cc:1][1]Cluster Exception Location[IP/ID]:[10.0.0.2/2], ExceptionType:[Stuck Occurred], x", "hccl_rank_stuck", None, {"peer": "10.0.0.2", "peer_device": 2}),  # noqa: E501  # one real line
        ("HCCL", "[e.cc:1][1]errNo[0x5] client : device[4] rank[4] get sokcet timeout, total[3]", "hccl_link_timeout", 4, {}),  # noqa: E501  # one real line
        ("HCCL", "[p.cc:1][1]connected p2p timeout, timeout:130 s. local logicDevid:5, remote", "hccl_link_timeout", 5, {}),  # noqa: E501  # one real line
    ],
)  # fmt: skip
def test_each_fault_of_canns_modules_is_told(
    module: str, text: str, kind: str, index: int | None, told: dict[str, object]
) -> None:
    """With the NPU that it names."""
    event = one(cann(module, text))
    assert (event.kind, event.device.index) == (kind, index)
    assert event.attributes == {"module": module, "pid": 413, "process": "python"} | told


@pytest.mark.parametrize("ports", ["", "  16666  |"])
def test_each_row_of_a_box_of_failed_connections_is_an_event(ports: str) -> None:
    """Its frame, title and heads are none; the other end stands first."""
    box = [
        "  _________________________LINK_ERROR_INFO___________________________",
        "  |  comm error, device[0] num[2]",
        "  |  dest_ip(rank_id)  |  src_ip(rank_id)   |   Role   |   Status   |",
        "  |  ----------------  |",
        f"  |  124.0.0.21(0)   |{ports}   124.0.0.11(1)   |{ports}  client  | no connect |",
        f"  |  124.0.0.22(8)   |{ports}   124.0.0.11(1)   |{ports}  server  | time out |",
        "the connection failure between this device and target device may be due to the following reasons:",
    ]
    events = read(*(cann("HCCL", f"[comm_base.cc:967][107626] {row}") for row in box))
    assert [event.line for event in events] == [5, 6]
    rows = [{name: event.attributes[name] for name in ("peer", "peer_rank", "ip", "rank", "state")} for event in events]
    assert rows == [
        {"peer": "124.0.0.21", "peer_rank": 0, "ip": "124.0.0.11", "rank": 1, "state": "no connect"},
        {"peer": "124.0.0.22", "peer_rank": 8, "ip": "124.0.0.11", "rank": 1, "state": "time out"},
    ]


@pytest.mark.parametrize(
    "line",
    [
        cann("HCCL", "[a.cc:1][1]Some NPUs get socket timeout, the details are as follows:"),
        cann("RUNTIME", "[d.cc:1]9 PrintCoreInfo:The extend info: errorStr: there is an aivec error"),
        cann("RUNTIME", "[s.cc:1]9 F:Task run failed, device_id=3", level="INFO"),
        cann("RUNTIME", "[s.cc:1]9 F:Task run failed, device_id=3", level="DEBUG"),
        cann("DRV", "[dev_mon_api.c:2976][dmp] [x 2976] get  dieid failed:DRV_ERROR_NOT_SUPPORT"),
        cann("IMP", "70 (device_id:1 die_id:0) [IMP] present 1, mac_link 1, pcs_link 1, rf_lf 1", level="EVENT"),
        AGENT + "get npu link stat failed, no such file or directory",
        AGENT + "receive devFaultInfo: {0 3 0 0 0 0 0 0 0}, hex code: 0",
        AGENT + "get fault event, [device type: NPU]-[device id: x]-[error code: 56000005]",
        "Task run failed, device_id=3",
        "[ERROR] RUNTIME(413,python): Task run failed, device_id=3",
        "[ERROR] RUNTIME(413,python):2025-13-99-99:99:99.789.123",
    ],
)
def test_what_tells_no_fault_gives_none(line: str) -> None:
    """Heads of lists, details, lower levels, healthy states, other agents' troubles, no record at all."""
    assert read(line) == []


def test_a_port_without_link_is_a_link_down() -> None:
    """The firmware's status line."""
    line = cann("IMP", "70 (device_id:6 die_id:0) [IMP] present 1, mac_link 0, pcs_link 1, rf_lf 1", "EVENT", "-2,IMP")
    event = one(line)
    assert (event.kind, event.device.index, event.attributes) == ("link_down", 6, {"module": "IMP", "present": 1})


def test_two_records_of_one_line_are_two_events() -> None:
    """The line's end was trimmed away by hand; so may its beginning be."""
    first = cann("RUNTIME", "[t.cc:1]F:E30008Memory async copy failed, device_id=0, length=4096.")
    second = cann("RUNTIME", "[d.cc:1]9 F:The error from device(1). there is a sdma error")
    assert [(event.kind, event.device.index) for event in read(first + second)] == [
        ("npu_task_failed", 0),
        ("npu_sdma_error", 1),
    ]
    assert one("rial number is 3]" + second).kind == "npu_sdma_error"


def test_a_line_holds_no_endless_records() -> None:
    """A limit on every loop."""
    assert len(read(cann("RUNTIME", "F:Task run failed, x ") * (MAX_RECORDS + 5))) == MAX_RECORDS


@pytest.mark.parametrize(("year", "known"), [("2025", True), ("2099", True), ("2100", False), ("2999", False)])
def test_a_clock_that_is_not_set_tells_no_time(year: str, known: bool) -> None:
    """One agent's log is dated 2999; the fault is told all the same."""
    line = f"[INFO]     {year}/10/01 03:31:28.461797 305     ipmimonitor/ipmi_monitor.go:206    get fault event, "
    event = one(line + "[device type: NPU]-[device id: 15]-[error code: 56000005]")
    assert (event.time is not None) == known
    assert (event.kind, event.code, event.device.type, event.device.index) == ("ascend_fault", 0x56000005, "npu", 15)


@pytest.mark.parametrize(("unit", "attributes"), [("1", {"unit": 1}), ("255", {})])
def test_a_hosts_alarm_names_its_part(unit: str, attributes: dict[str, object]) -> None:
    """255 is the agent's number for a part that has none."""
    event = one(AGENT + f"get fault event, [device type: CPU Board]-[device id: {unit}]-[error code: 2C000031]")
    assert (event.device.type, event.severity, event.cause) == ("node", "fatal", "host")
    assert event.attributes == {"fault_code": "2C000031", "name": "CPU Board"} | attributes


NAMED = "{{EventID:1 LogicID:3 ModuleType:1 ModuleID:0 SubModuleType:0 SubModuleID:0 Severity:2 Assertion:{} AlarmRaisedTime:9}}"  # noqa: E501  # one real line
BARE = "{{2162196485 3 5 0 0 0 4 {} 1740801906000}}"


@pytest.mark.parametrize("form", [f"{BARE}, hex code", f"{NAMED}, hex fault code"], ids=["bare", "named"])
@pytest.mark.parametrize(
    ("assertion", "kind", "severity"),
    [(1, "ascend_fault", "error"), (2, "ascend_fault", "error"), (0, "ascend_fault_cleared", "info")],
)
def test_an_npus_fault_is_raised_and_cleared(form: str, assertion: int, kind: str, severity: str) -> None:
    """Assertion 2 is a fault that has no end."""
    event = one(AGENT + f"receive devFaultInfo: {form.format(assertion)}: 80e18005")
    assert (event.time, event.kind, event.severity, event.code) == (WHEN, kind, severity, 0x80E18005)
    assert (event.device.type, event.device.index) == ("npu", 3)
    assert event.attributes == {"fault_code": "80E18005"}


STRUCT = (
    'deviceswitch.SwitchFaultEvent{{EventType:0x4, FaultID:0xf1fef5, AssembledFaultCode:"[0x00f1fef5,155912,npu,na]", '
    "PeerPortDevice:0x1, PeerPortId:0x6, SwitchChipId:0x2, SwitchPortId:0x13, Severity:0x0, Assertion:0x{}, "
    'EventSerialNum:0, AdditionalInfo:""}}'
)
PLAIN = (
    "AlarmId: 0x00f1fef5, FaultID: 155912, AssembledFaultCode: [0x00f1fef5,155912,npu,na], PeerPortDevice: 1, "
    "PeerPortId: 6, SwitchChipId: 2, SwitchPortId: 19, Assertion: {}, AlarmRaisedTime: 9"
)


@pytest.mark.parametrize("form", [STRUCT, PLAIN], ids=["struct", "plain"])
@pytest.mark.parametrize(
    ("assertion", "kind", "severity"), [(1, "ascend_fault", "fatal"), (0, "ascend_fault_cleared", "info")]
)
def test_a_switchs_fault_is_raised_and_cleared(form: str, assertion: int, kind: str, severity: str) -> None:
    """In the forms of older and newer agents."""
    line = f"{AGENT}switch subscribe got fault:{form.format(assertion)}, faultCode:[0x00f1fef5,155912,npu,na]"
    event = one(line.replace("[INFO]", "[WARN]"))
    assert (event.kind, event.severity, event.code) == (kind, severity, 0xF1FEF5)
    assert (event.device.type, event.device.index, event.device.port) == ("switch", 2, 19)
    assert event.attributes == {"fault_code": "0x00f1fef5,155912,npu,na", "peer_device": 1, "peer_port": 6}


@pytest.mark.parametrize(("port", "number"), [("06", 6), ("0x13", 19), (str(2**63), None), ("0x" + "f" * 16, None)])
def test_a_switchs_port_is_a_number_that_a_record_holds(port: str, number: int | None) -> None:
    """Leading noughts are none of another base; what is too large is missing."""
    told = PLAIN.format(1).replace("SwitchPortId: 19", f"SwitchPortId: {port}")
    line = f"{AGENT}switch subscribe got fault:{told}, faultCode:[0x00f1fef5,155912,npu,na]"
    assert one(line.replace("[INFO]", "[WARN]")).device.port == number


def test_the_npus_own_kernel_log_is_read_as_a_kernels() -> None:
    """Repeated by the device's log daemon."""
    text = "[klogd.c:253][251681.794072] [ascend] [ERROR] [tsdrv] [tsdrv_hb 319] <swapper/30:0> x, call excep_code=0xb4060007, devid=1"  # noqa: E501  # one real line
    event = one(cann("KERNEL", text, level="EVENT", who="6843,sklogd"))
    assert (event.time, event.kind, event.code, event.device.index) == (WHEN, "ascend_fault", 0xB4060007, 1)


def test_an_inference_servers_error_has_its_code() -> None:
    """An application's."""
    line = "[2025-03-01 04:05:06.789123] [11] [1] [MS] [1] [ERROR] : [MIE03E400008] [HttpServer] Http server on timeout"
    event = one(line)
    assert (event.time, event.kind, event.cause) == (WHEN, "mindie_error", "application")
    assert event.attributes == {"error_code": "MIE03E400008", "name": "HttpServer"}


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' lines (../shared/data/vendors) are not on this machine")
def test_every_line_of_the_vendors_tests_is_recognised() -> None:
    """And half of them tell a fault."""
    lines = [line.split("\t", 1)[1] for line in (VENDORS / "ascend_lines.tsv").read_text().splitlines()[1:]]
    assert [line for line in lines if not FORMAT.recognises.search(line)] == []
    told = {event.line for event in read(*lines) if event.kind != "ascend_fault_cleared"}
    assert (len(lines), len(told)) == (60, 35)


@pytest.mark.parametrize(
    ("text", "kind", "index"),
    [
        (
            "[task_info.cc:1170]57288 PrintSdmaErrorInfoForFftsPlusTask:fftsplus task execute failed, dev_id=3, "
            "stream_id=50, task_id=21, context_id=18, thread_id=0, err_type=4[fftsplus sdma error]",
            "npu_sdma_error",
            3,
        ),
        (
            "[engine.cc:1103]16282 ReportExceptProc:Task exception! device_id=2, stream_id=7, task_id=2, type=1, "
            "retCode=0x2a, [aicpu exception].",
            "npu_task_failed",
            2,
        ),
        (
            "[mindspore/ccsrc/runtime/device/ascend/ascend_kernel_runtime.cc:679] DumpTaskExceptionInfo] Task fail "
            "infos task_id: 13, stream_id: 14, tid: 118198, device_id: 1, retcode: 507011 ( model execute failed)",
            "npu_task_failed",
            1,
        ),
    ],
)
def test_a_task_s_exception_names_its_npu(text: str, kind: str, index: int) -> None:
    """As CANN's public manual shows them."""
    event = one(cann("RUNTIME", text))
    assert (event.kind, event.severity, event.device.index) == (kind, "error", index)

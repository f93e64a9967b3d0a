"""Exceptions of Python and C++, and failures that NCCL and PyTorch's watchdog of collectives report.

    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.   -> OutOfMemoryError, application
      what():  CUDA error: uncorrectable ECC error encountered                -> c10_error, hardware
    Fatal Python error: Bus error                                             -> fatal_python_error

The last line of a traceback names the error. Lines that merely mention an error give no event.
"""

import re

from parsers.reports.nvml_failures import nvml_failure
from parsers.training.error_report import MAX_MESSAGE, ErrorReader, ErrorReport, numbers, variant_of
from store.records.event import Attribute

# NCCL's warnings and PyTorch's watchdog over its collectives.
#
#     [rank5]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught collective operation timeout:
#       WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600081 milliseconds ...
#     -> nccl_watchdog, rank 5, operation ALLREDUCE, timeout_ms 600000; some rank did not come: the cause is not known
#     [2026-03-03 12:11:38] gpu-007:185303:186751 [1] transport/net_ib.cc:2453 NCCL WARN NET/IB: Got completion from
# peer
#       10.99.91.63<51161> with status=12 opcode=0 len=0 vendor err 129 (Send) ... hca mlx5_1
#     -> nccl_ib_completion on gpu-007, fabric, status 12, vendor_err 129, peer 10.99.91.63, name mlx5_1
#
# Sources: ProcessGroupNCCL.cpp of PyTorch;
# transport/net_ib.cc, misc/ibvwrap.cc, misc/socket.cc, include/checks.h of NCCL.

_GLOG = re.compile(r"\[?[EWF](?P<month>\d{1,2})?(?P<day>\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}\.\d{1,9}) ", re.ASCII)
_RAISED_ASYNC = re.compile(r"raised the following async exception: (?P<text>.{1,400})", re.ASCII)
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout|watchdog thread terminated with exception"
    r"|[Ww]atchdog got stuck for|Heartbeat monitor timed out",
    re.ASCII,
)
_RANK = re.compile(r"\bRank (?P<rank>\d{1,7})\b", re.ASCII)
_WORK = re.compile(
    r"SeqNum=(?P<sequence>\d{1,15}), OpType=(?P<operation>\w{1,40}).{0,200}?Timeout\(ms\)=(?P<timeout_ms>\d{1,12})"
    r"\) ran for (?P<ran_ms>\d{1,12}) milliseconds",
    re.ASCII,
)
_OPERATION = re.compile(r"SeqNum=(?P<sequence>\d{1,15}), OpType=(?P<operation>\w{1,40})", re.ASCII)
_WARN = "NCCL WARN "
_NODE = re.compile(r"(?P<node>[\w.-]{1,200}):\d{1,10}:\d{1,10} \[\d{1,3}\] [^\[]{0,120}$", re.ASCII)
# How far before the warning its host stands.
_HEAD = 400
_COMPLETION = re.compile(
    r"NET/IB.{0,40}: Got completion (?:from peer (?P<peer>[^<\s]{1,80})(?:<\d{1,5}>)? )?"
    r"with (?:status|error)[ =](?:\w{1,40}\()?(?P<status>\d{1,4}).{0,200}?vendor[ _]err[ =](?P<vendor_err>\d{1,6})"
    r"(?:.{0,300}? hca (?P<name>[\w.-]{1,64}))?",
    re.ASCII,
)
_ASYNC = re.compile(
    r"NET/IB : (?:(?P<name>[\w.-]{1,64}):\d{1,3} )?(?:Got )?(?P<event>async fatal|(?:non-fatal )?async) event",
    re.ASCII,
)
# How a work request ended (enum ibv_wc_status of libibverbs/verbs.h; InfiniBand Architecture Specification volume 1,
# section 11.6.2). No answer came over the fabric: 12 (retries exceeded), 20 (a response that timed out).
_NO_ANSWER = frozenset({"12", "20"})
# The request itself was refused here: its length, its operation, its memory, its window. No peer has to do with it.
_REFUSED_HERE = frozenset({"1", "2", "4", "6", "8"})
# The queue pair was in its error state before: an earlier request failed, or the other end went.
_FLUSHED = "5"
# What every rank says when a subnet manager starts or changes hands (rdma-core, libibverbs/enum_strs.c): no trouble.
_HARMLESS = re.compile(
    r" event ?: (?:client reregistration|(?:GID table|SM|LID|P_Key) change|communication established"
    r"|send queue drained|last WQE reached)",
    re.ASCII,
)
_IBV = re.compile(r"Call to (?P<call>ibv_\w{1,60}) failed", re.ASCII)
_CUDA = re.compile(
    r"(?:Cuda|HIP) failure (?:\d{1,6} )?'(?P<what>[^']{1,200})'"
    r"|(?:cuda|hip)(?:Ipc|Mem|Malloc|Event|Stream|Launch|Device)\w{1,40} failed ?: ?(?P<said>\w.{1,120})",
    re.ASCII,
)
# NCCL's multicast over the NVSwitches: what cannot be bound, says NCCL, is the Fabric Manager's or a switch's fault.
_NVLS = re.compile(
    r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory(?: of size (?P<bytes>\d{1,18}))?.{0,120}?"
    r": {0,2}CUDA error (?P<cuda_error>\d{1,6}) '(?P<what>[^']{1,200})'",
    re.ASCII,
)
_NVLS_PLACE = "transport/nvls"
_SOCKET = re.compile(
    r"Call to (?:connect|recv|send|accept|poll)\w{0,20} .{0,80}(?:failed|timeout)|[Cc]onnection closed by remote peer"
    r"|[Ss]ocket (?:recv|send) failed"
    r"|(?:socket\w{1,40}|ncclSocket\w{1,40}): .{0,200}(?:failed|refused|timed out|closed|exceeded)"
    r"|^Connect to \S{1,80} failed",
    re.ASCII,
)
# Amazon's and HPE's networks under NCCL (aws-ofi-nccl): a transfer that ended in error, memory that was not registered.
_OFI = re.compile(
    r"NET/OFI (?:Request (?:0x[0-9a-f]{1,16} )?(?P<ended>completed with error)(?:\. RC: (?P<status>-?\d{1,6}))?"
    r"|(?:Unable to|Could not) register memory)",
    re.ASCII,
)
# What the provider says where no answer came.
_NOT_REACHED = ("Unresponsive receiver", "nreachable", "No route to ")


def read_nccl(text: str) -> ErrorReport | None:
    """A watchdog's line, or a warning that reports a fault."""
    if match := _WATCHDOG.search(text):
        return _watchdog(text, match)
    if match := _RAISED_ASYNC.search(text):
        return _async(text, match)
    if match := _NVLS.search(text):
        return _multicast(text, match)
    head, warned, said = text.partition(_WARN)
    if not warned:
        return None
    named = _NODE.search(head[-_HEAD:])
    node = named["node"] if named else None
    if _NVLS_PLACE in head and (match := _CUDA.search(said)):
        return ErrorReport("nccl_nvls", said.strip()[:MAX_MESSAGE], variant="fabric", node=node)
    return _warning(said, node)


def _multicast(text: str, match: re.Match[str]) -> ErrorReport:
    """A multicast group that cannot be bound; without memory for it, the program's matter."""
    named = _NODE.search(text[max(match.start() - _HEAD, 0) : match.start()].partition(_WARN)[0])
    fields = numbers({"bytes": match["bytes"], "cuda_error": match["cuda_error"]})
    variant = "application" if "out of memory" in match["what"] else "fabric"
    node = named["node"] if named else None
    return ErrorReport("nccl_nvls", match[0][:MAX_MESSAGE], variant=variant, node=node, attributes=fields)


def _watchdog(text: str, match: re.Match[str]) -> ErrorReport:
    message = text[match.start() :].strip()
    fields = {}
    for pattern in (_RANK, _WORK):
        if found := pattern.search(text):
            fields.update(numbers(found.groupdict()))
    name = "nccl_heartbeat" if "got stuck" in message or "Heartbeat" in message else "nccl_watchdog"
    variant = variant_of("", message)
    return ErrorReport(
        name, message[:MAX_MESSAGE], variant=variant, glog=glog_of(text), attributes=fields, of_group=True
    )


def _async(text: str, match: re.Match[str]) -> ErrorReport:
    """What NCCL told PyTorch of a collective that was still under way."""
    fields: dict[str, Attribute] = {}
    for pattern in (_RANK, _OPERATION):
        if found := pattern.search(text, 0, match.start()):
            fields.update(numbers(found.groupdict()))
    variant = variant_of("", match["text"])
    message = match["text"].strip()[:MAX_MESSAGE]
    return ErrorReport("nccl_async", message, variant=variant, glog=glog_of(text), attributes=fields, of_group=True)


def glog_of(text: str) -> tuple[int, str, str] | None:
    """Month, day and clock of a line of PyTorch's logger; None where it bears none."""
    glog = _GLOG.search(text)
    return (int(glog["month"]), glog["day"], glog["clock"]) if glog and glog["month"] else None


def _warning(text: str, node: str | None) -> ErrorReport | None:
    message = text.strip()[:MAX_MESSAGE]
    if match := _COMPLETION.search(text):
        return _completion(match, message, node)
    if match := _ASYNC.search(text):
        if _HARMLESS.search(text, match.start()):
            return None
        grave = match["event"] == "async fatal"
        fields = {"name": match["name"]} if match["name"] else {}
        return ErrorReport(
            "nccl_ib_async", message, variant="fabric" if grave else "fabric_event", node=node, attributes=fields
        )
    if match := _OFI.match(text):
        return _libfabric(match, message, node)
    if match := _IBV.search(text):
        return ErrorReport("nccl_ib_call", message, variant="fabric", node=node, attributes=_fields(match))
    if match := _CUDA.search(text):
        return ErrorReport("nccl_cuda", message, variant=variant_of("", match["what"] or match["said"]), node=node)
    if _SOCKET.search(text):
        return ErrorReport("nccl_socket", message, variant="noticed", node=node)
    return None


def _libfabric(match: re.Match[str], message: str, node: str | None) -> ErrorReport:
    """A transfer that ended in error is the fabric's where the peer does not answer; else nobody is accused."""
    if not match["ended"]:
        return ErrorReport("nccl_ofi_memory", message, node=node)
    variant = "fabric" if any(words in message for words in _NOT_REACHED) else ""
    status = numbers({"status": match["status"]})
    return ErrorReport("nccl_ofi_completion", message, variant=variant, node=node, attributes=status)


def _completion(match: re.Match[str], message: str, node: str | None) -> ErrorReport:
    """A transfer that failed, by how: no answer came, this end or the other refused it, or one before it failed."""
    name, variant = "nccl_ib_completion", ""
    if match["status"] in _NO_ANSWER:
        variant = "fabric"
    elif match["status"] == _FLUSHED:
        name, variant = "nccl_ib_flushed", "noticed"
    elif match["status"] in _REFUSED_HERE:
        name = "nccl_ib_refused"
    return ErrorReport(name, message, variant=variant, node=node, attributes=_fields(match))


def _fields(match: re.Match[str]) -> dict[str, str | int | float | bool | None]:
    return numbers(match.groupdict())


NCCL = ErrorReader(
    name="nccl",
    signs=("atchdog", "NCCL WARN", "Heartbeat monitor", "NVLink SHARP (NVLS)", "following async exception"),
    read=read_nccl,
)


# JAX's and TensorFlow's coordination service: which task did not come, and what the others say who are ended for it.
#
#     2022-11-15 16:03:15.140058: E external/.../coordination_service.cc:954] /job:jax_worker/replica:0/task:37 has been
#       set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. ...
#     -> coordination_error, peer_rank 37; why it does not answer is not known
#
# Sources: coordination_service.cc, coordination_service_agent.cc and pjrt/distributed/client.cc of openxla/xla.

_COORDINATION = re.compile(
    r"/task:(?P<peer_rank>\d{1,7}) has been set to ERROR in coordination service: (?P<text>.{1,300})"
    r"|Coordination service agent in error status: .{1,300}"
    r"|Polled an error from coordination service"
    r"|[Tt]erminating process because the (?:JAX distributed|coordination) service detected fatal errors",
    re.ASCII,
)


def read_jax(text: str) -> ErrorReport | None:
    """A task that was lost, or this one's end because of another."""
    match = _COORDINATION.search(text)
    if match is None:
        return None
    fields = numbers({"peer_rank": match["peer_rank"]})
    return ErrorReport("coordination_error", match[0].strip()[:MAX_MESSAGE], glog=glog_of(text), attributes=fields)


JAX = ErrorReader(
    name="jax",
    signs=(
        *("in coordination service", "Coordination service agent in", "from coordination service"),
        "erminating process because the",
    ),
    read=read_jax,
)


# NVIDIA's library and container tool, whichever program of a job prints what they say.
_NVML_NAMES = {"nvrm_mismatch": "nvml_mismatch", "gpu_missing": "gpu_lost", "node_service": "nvml_failed"}
_NVML_VARIANTS = {"gpu_missing": "hardware"}


def read_nvml(text: str) -> ErrorReport | None:
    """A driver that does not answer, or has another version; a GPU that is lost."""
    failure = nvml_failure(text)
    if failure is None:
        return None
    variant = _NVML_VARIANTS.get(failure.kind, "driver")
    device = {} if failure.device.index is None else {"device": failure.device.index}
    return ErrorReport(_NVML_NAMES[failure.kind], text.strip()[:MAX_MESSAGE], variant=variant, attributes=device)


NVML = ErrorReader(
    name="nvml",
    signs=("Failed to initialize NVML: ", "NVIDIA-SMI has failed", "nvidia-container-cli: "),
    read=read_nvml,
)


# Torchrun's agent prints its own tracebacks line by line behind its logger's head.
_RAISED = re.compile(
    r"(?:[EF]\d{4} [\d:.]{8,18} {1,8}\d{1,20} [\w./-]{1,120}:\d{1,6}\] )?"
    r"(?:\[[^\]]{0,120}\]:? ?){0,4}(?P<name>Exception|(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}"
    r"(?:Error|Exception|Exit|Interrupt)(?:_[A-Z]\w{1,40})?)(?:: (?P<text>.*)|\s*$)",
    re.ASCII,
)
_WHAT = re.compile(r"\s{0,8}what\(\):  ?(?P<text>.+)", re.ASCII)
_FATAL = re.compile(r"Fatal Python error: (?P<text>.{1,200})", re.ASCII)
# Faults of the GPU as JAX and other programs over the CUDA driver print them; the driver's other errors may be tries.
_DRIVER_ERROR = re.compile(
    r"\b(?P<name>CUDA_ERROR_(?:CONTAINED|ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|EXTERNAL_DEVICE"
    r"|DEVICE_UNAVAILABLE|SYSTEM_NOT_READY|LAUNCH_FAILED|ILLEGAL_ADDRESS)): (?P<text>.{1,200})",
    re.ASCII,
)
# The same in another logger's line, where no exception's name begins it.
_CUDA_ERROR = re.compile(
    r"CUDA [Ee]rror(?: Prev)?: (?P<text>(?:Invalid access of peer GPU memory|uncorrectable (?:ECC|NVLink) error"
    r"|hardware stack error|device is in an unavailable state).{0,200})",
    re.ASCII,
)
# Cambricon's runtime.
_CNRT = re.compile(
    r"\[cnrtError\] \[\d{1,10}\] \[Card ?: ?(?P<device>\d{1,4})\] (?P<text>.{1,300})",
    re.ASCII,
)
# AMD's runtime ends the program: an address that is not its own, or a GPU that hangs, for whatever reason.
_ROCM = re.compile(r"(?P<what>Memory access fault|HW Exception) by GPU node-\d{1,4}\b.{0,300}", re.ASCII)
# And a queue that it takes off: an address or an instruction of the program's, else its work or the GPU.
_HSA = re.compile(r"[Aa]borting with error : (?P<name>HSA_STATUS_ERROR_\w{1,60})(?:: .{0,300})?", re.ASCII)
_HSA_OF_PROGRAMS = ("MEMORY_APERTURE_VIOLATION", "MEMORY_FAULT", "ILLEGAL_INSTRUCTION", "OUT_OF_RESOURCES", "INVALID_")
# Megatron-LM's check of its gradients: the program's, or a GPU that computes wrongly.
_NAN = re.compile(
    r"[Rr]ank (?P<rank>\d{1,7}): found (?:NaN|Inf) in local .{0,200}?Device: (?P<device>\d{1,4}), "
    r"node: (?P<node>[\w.-]{1,200})",
    re.ASCII,
)
_UNEXPECTED = re.compile(
    r"Possible (?P<which>transient|persistent) error!"
    r"|Unexpected result .{0,200}? on rank (?P<rank>\d{1,7}) at iteration #?(?P<iteration>\d{1,12})",
    re.ASCII,
)
# A step that is done again on the same numbers and gives others: `rank=` is whose, the line's own rank who noticed it.
_REPLAYED = re.compile(r"\b(?P<name>\w{0,40}(?:Replay|Checksum)Mismatch): (?P<text>.{1,400})", re.ASCII)
_OF_RANK = re.compile(r"\brank[ =:]{1,2}(?P<rank>\d{1,7})\b", re.ASCII)
_OF_STEP = re.compile(r"\b(?:step|iteration)[ =:]{1,2}(?P<iteration>\d{1,12})\b", re.ASCII)


def read_python(text: str) -> ErrorReport | None:
    """The error that a line names."""
    if match := _REPLAYED.search(text):
        return _replayed(match)
    if match := _NAN.search(text):
        fields = numbers({"rank": match["rank"], "device": match["device"]})
        return ErrorReport("nan_found", match[0][:MAX_MESSAGE], node=match["node"], attributes=fields, traceback=True)
    if match := _RAISED.match(text):
        name, message = match["name"].rpartition(".")[2], match[0][match.start("name") :]
        message, variant = message.strip()[:MAX_MESSAGE], variant_of(name, message)
        return ErrorReport(name, message, variant=variant, glog=glog_of(text[: match.start("name")]), traceback=True)
    if match := _DRIVER_ERROR.search(text):
        return ErrorReport(match["name"], match[0].strip()[:MAX_MESSAGE], variant=_driver_variant(match))
    if match := _WHAT.match(text):
        return ErrorReport("c10_error", match["text"].strip()[:MAX_MESSAGE], variant=variant_of("", match["text"]))
    if match := _FATAL.match(text):
        return ErrorReport("fatal_python_error", match[0].strip()[:MAX_MESSAGE], variant=variant_of("", match["text"]))
    return _runtime(text)


def _runtime(text: str) -> ErrorReport | None:
    """What the runtime of an accelerator says, where no exception's name stands before it."""
    if match := _ROCM.search(text):
        return _rocm(match)
    if match := _HSA.search(text):
        ours = match["name"].removeprefix("HSA_STATUS_ERROR_").startswith(_HSA_OF_PROGRAMS)
        return ErrorReport(match["name"], match[0].strip()[:MAX_MESSAGE], variant="application" if ours else "")
    if match := _CNRT.search(text):
        device = numbers({"device": match["device"]})
        return ErrorReport("cnrt_error", match["text"].strip()[:MAX_MESSAGE], attributes=device)
    if match := _CUDA_ERROR.search(text):
        return ErrorReport("cuda_error", match[0].strip()[:MAX_MESSAGE], variant="hardware")
    if match := _UNEXPECTED.search(text):
        return _unexpected(match)
    return None


def _driver_variant(match: re.Match[str]) -> str:
    """By its name: its words are shorter than those of CUDA's runtime."""
    if match["name"] in ("CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ILLEGAL_ADDRESS"):
        return "application"
    return "fabric" if match["name"] == "CUDA_ERROR_SYSTEM_NOT_READY" else "hardware"


def _rocm(match: re.Match[str]) -> ErrorReport:
    """A program that AMD's runtime ended; its number of a node counts processors too, so no device is named."""
    ours = match["what"] == "Memory access fault"
    name, variant = ("rocm_memory_fault", "application") if ours else ("rocm_hw_exception", "")
    return ErrorReport(name, match[0].strip()[:MAX_MESSAGE], variant=variant)


def _replayed(match: re.Match[str]) -> ErrorReport:
    """A result that its own repetition did not give: the rank that is named computes wrongly."""
    fields = {}
    for pattern in (_OF_RANK, _OF_STEP):
        if found := pattern.search(match["text"]):
            fields.update(numbers(found.groupdict()))
    message = f"{match['name']}: {match['text'].strip()}"[:MAX_MESSAGE]
    return ErrorReport("replay_mismatch", message, variant="hardware", traceback=True, attributes=fields)


def _unexpected(match: re.Match[str]) -> ErrorReport:
    """Megatron's rerun state machine: a result that a second run did not give is the hardware's."""
    if match["which"]:
        return ErrorReport(f"{match['which']}_error", match[0], variant="hardware")
    where = {"rank": int(match["rank"]), "iteration": int(match["iteration"])}
    return ErrorReport("unexpected_result", match[0], variant="noticed", attributes=where)


PYTHON = ErrorReader(
    name="python",
    signs=(
        *("rror", "xception", "Exit", "Interrupt", "what():"),
        *("Unexpected result", "CUDA_ERROR_", "in local ", "Mismatch", "by GPU node-", "HSA_STATUS_ERROR_"),
        "[cnrtError]",
    ),
    read=read_python,
)

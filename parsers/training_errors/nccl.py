"""NCCL's warnings and PyTorch's watchdog over its collectives.

    [rank5]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught collective operation timeout:
      WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600081 milliseconds ...
    -> nccl_watchdog, rank 5, operation ALLREDUCE, timeout_ms 600000; some rank did not come: the cause is not known
    [2026-03-03 12:11:38] gpu-007:185303:186751 [1] transport/net_ib.cc:2453 NCCL WARN NET/IB: Got completion from peer
      10.99.91.63<51161> with status=12 opcode=0 len=0 vendor err 129 (Send) ... hca mlx5_1
    -> nccl_ib_completion on gpu-007, fabric, status 12, vendor_err 129, peer 10.99.91.63, name mlx5_1

Sources: ProcessGroupNCCL.cpp of PyTorch;
transport/net_ib.cc, misc/ibvwrap.cc, misc/socket.cc, include/checks.h of NCCL.
"""

import re

from parsers.training_errors.causes import variant_of
from parsers.training_errors.report import MAX_MESSAGE, Reader, Report, numbers

_GLOG = re.compile(r"\[?[EWF](?P<month>\d{1,2})?(?P<day>\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}\.\d{1,9}) ", re.ASCII)
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
_IBV = re.compile(r"Call to (?P<call>ibv_\w{1,60}) failed", re.ASCII)
_CUDA = re.compile(r"Cuda failure (?:\d{1,6} )?'(?P<what>[^']{1,200})'", re.ASCII)
_SOCKET = re.compile(
    r"Call to (?:connect|recv|send|accept|poll)\w{0,20} .{0,80}(?:failed|timeout)|[Cc]onnection closed by remote peer"
    r"|(?:socket\w{1,40}|ncclSocket\w{1,40}): .{0,200}(?:failed|refused|timed out|closed|exceeded)",
    re.ASCII,
)


def read(text: str) -> Report | None:
    """A watchdog's line, or a warning that tells of a fault."""
    if match := _WATCHDOG.search(text):
        return _watchdog(text, match)
    head, warned, said = text.partition(_WARN)
    if not warned:
        return None
    named = _NODE.search(head[-_HEAD:])
    return _warning(said, named["node"] if named else None)


def _watchdog(text: str, match: re.Match[str]) -> Report:
    message = text[match.start() :].strip()
    told = {}
    for pattern in (_RANK, _WORK):
        if found := pattern.search(text):
            told.update(numbers(found.groupdict()))
    name = "nccl_heartbeat" if "got stuck" in message or "Heartbeat" in message else "nccl_watchdog"
    glog = _GLOG.search(text)
    at = (int(glog["month"]), glog["day"], glog["clock"]) if glog and glog["month"] else None
    return Report(name, message[:MAX_MESSAGE], variant=variant_of("", message), glog=at, attributes=told)


def _warning(text: str, node: str | None) -> Report | None:
    message = text.strip()[:MAX_MESSAGE]
    if match := _COMPLETION.search(text):
        return Report("nccl_ib_completion", message, "training_error", "fabric", node=node, attributes=_told(match))
    if match := _ASYNC.search(text):
        grave = match["event"] == "async fatal"
        told = {"name": match["name"]} if match["name"] else {}
        return Report(
            "nccl_ib_async", message, variant="fabric" if grave else "fabric_event", node=node, attributes=told
        )
    if match := _IBV.search(text):
        return Report("nccl_ib_call", message, variant="fabric", node=node, attributes=_told(match))
    if match := _CUDA.search(text):
        return Report("nccl_cuda", message, variant=variant_of("", match["what"]), node=node)
    if _SOCKET.search(text):
        return Report("nccl_socket", message, variant="noticed", node=node)
    return None


def _told(match: re.Match[str]) -> dict[str, str | int | float | bool | None]:
    return numbers(match.groupdict())


READER = Reader(name="nccl", signs=("atchdog", "NCCL WARN", "Heartbeat monitor"), read=read)

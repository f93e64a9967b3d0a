"""Errors of torch_npu and of CANN's collectives (HCCL), as a training program on Ascend NPUs prints them.

    [rank1]: [ERROR] 2025-04-08-18:07:20 (PID:1292363, Device:1, RankID:1) ERR01100 OPS call acl api failed.
    -> training_error ERR01100, rank 1
    EI0002: [PID: 2969] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times out. Reason: The
      Notify register has not received the Notify record from remote rank: [24]. base information: [streamID:[109], ...
    -> training_error EI0002, peer_rank 24; some rank did not come: the cause is not known

A code's first letters name the module: EI is HCCL, EJ its process, EL the driver, EZ an operator, ERR torch_npu, whose
last three digits tell which library failed (100 ACL, 200 HCCL). Newer releases print the code behind the fault's name:
`[PID: 60571] 2025-12-04-14:46:07.669.968 Bind_Failed(EJ0003): Failed to bind the IP port.`
Sources: the error codes of Ascend/pytorch and of CANN, logs in public issues of vllm-project/vllm-ascend,
Ascend/pytorch and InternLM/lmdeploy.
"""

import re

from parsers.training.error_report import MAX_MESSAGE, ErrorReader, ErrorReport, numbers, variant_of

_STAMP = r"(?P<day>\d{4}-\d{2}-\d{2})-(?P<clock>\d{2}:\d{2}:\d{2})(?:\.(?P<ms>\d{3})(?:\.(?P<us>\d{3}))?)?"
_TORCH = re.compile(
    rf"{_STAMP} \(PID:(?P<pid>\d{{1,10}}), Device:(?P<device>\d{{1,4}}), RankID:(?P<rank>-?\d{{1,7}})\) "
    r"(?P<code>ERR\d{5}) (?P<text>.{1,400})",
    re.ASCII,
)
_CODE = r"(?P<code>E[A-Z]\d{4}|E\d{5})"
_CANN = re.compile(
    rf"(?:^|[\s\]]){_CODE}: (?:\[PID: ?(?P<pid>\d{{1,10}})\] )?{_STAMP} +(?P<text>.{{1,800}})", re.ASCII | re.DOTALL
)
_NAMED = re.compile(
    rf"(?:^|[\s\]])(?:\[PID: ?(?P<pid>\d{{1,10}})\] {_STAMP} )?[A-Z]\w{{1,60}}_\w{{1,60}}\({_CODE}\): "
    r"(?P<text>.{1,800})",
    re.ASCII | re.DOTALL,
)
# Old releases print no time, and one code over several lines: `EH9999: Inner Error!` stands above what it is.
_BARE = re.compile(r"\s{0,8}(?P<code>E[EHIJLZ]\d{4}): (?!Inner Error!)(?P<text>[A-Za-z].{1,800})", re.ASCII | re.DOTALL)
_PEER = re.compile(r"remote rank: ?\[(?P<peer_rank>\d{1,7})\]", re.ASCII)
# A call of the runtime that failed, as PaddlePaddle prints it; a warning of torch_npu's.
_CALLED = re.compile(r"Call (?P<call>acl\w{1,60})\(.{0,200}?\) failed : (?P<status>\d{6}) at file", re.ASCII)
_WARNED = re.compile(r"NPU warning, error code is (?P<status>\d{6})", re.ASCII)
# What a code says whatever its words are: EI0013 is an error of the network adapter's completion queue; a process of an
# earlier run, a port that is taken and operators that do not fit each other are the program's.
_VARIANTS = {
    "EI0013": "fabric",
    **dict.fromkeys(("EI0004", "EI0005", "EI0014", "EI0020", "EJ0001", "EJ0003", "EL0004"), "application"),
}


def read_npu(text: str) -> ErrorReport | None:
    """What an error line of torch_npu or CANN tells."""
    if match := _TORCH.search(text):
        found = {name: match[name] for name in ("pid", "rank")}
        if match["rank"].startswith("-"):  # before the ranks are known
            del found["rank"]
        attributes = {**numbers(found), "device": int(match["device"])}
        return ErrorReport(match["code"], _message(match), time=_time(match), attributes=attributes)
    if match := _CALLED.search(text):
        return ErrorReport("acl_call", match[0][:MAX_MESSAGE], attributes=numbers(match.groupdict()))
    if match := _WARNED.search(text):
        status = numbers(match.groupdict())
        return ErrorReport("npu_warning", match[0], variant="noticed", attributes=status, distinct_by=match["status"])
    match = _NAMED.search(text) or _CANN.search(text) or _BARE.match(text)
    if match is None:
        return None
    peer = _PEER.search(match["text"])
    attributes = numbers({"pid": match.groupdict().get("pid"), "peer_rank": peer and peer["peer_rank"]})
    variant = _VARIANTS.get(match["code"]) or variant_of("", match["text"])
    return ErrorReport(match["code"], _message(match), variant=variant, time=_time(match), attributes=attributes)


def _message(match: re.Match[str]) -> str:
    """The code and its first words: what follows are tables of streams and tasks."""
    return f"{match['code']}: {match['text'].strip()}"[:MAX_MESSAGE]


def _time(match: re.Match[str]) -> str | None:
    """`2025-10-11-15:09:34.713.335` as other logs write it; None where the line bears none."""
    if match.groupdict().get("day") is None:
        return None
    parts = [part for part in (match["ms"], match["us"]) if part]
    return f"{match['day']} {match['clock']}" + (f".{''.join(parts)}" if parts else "")


NPU = ErrorReader(
    name="npu",
    signs=(
        "(PID:",
        "[PID:",
        "EI0",
        "EJ0",
        "EE1002: ",
        ") failed : ",
        "NPU warning, error code",
        *(f"E{module}9999" for module in "EHIZ"),
    ),
    read=read_npu,
)

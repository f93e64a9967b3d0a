"""Failed calls of CUDA and NCCL as programs in C++ print them: benchmarks, burn-in tests, trainers without Python.

    gpu-07: Test NCCL failure common.cu:1005 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '
    CUDA error at bandwidthTest.cu:256 code=802(cudaErrorSystemNotReady) "cudaSetDevice(currentDevice)"
    -> two ErrorReports: "nccl_error" of the node gpu-07, and "cuda_error" with status 802

Forms: nccl-tests, CUDA's samples, HPL of NVIDIA's containers, Google's log library, PyTorch's warning at its first use.
"""

import re

from parsers.training.error_report import MAX_MESSAGE, ErrorReader, ErrorReport, numbers, variant_of
from parsers.training.exceptions import glog_of

# nccl-tests, and the macros of CUDA's samples: a library, where it was called, what it answered.
_FAILURE = re.compile(
    r"(?:(?P<node>[\w.-]{1,200}): )?(?:Test )?(?P<library>NCCL|CUDA|Cuda) failure "
    r"[\w./-]{1,120}:\d{1,6}:? '(?P<text>[^']{1,300})",
    re.ASCII,
)
# A check of the CUDA runtime's or driver's result, as benchmarks print it.
_CHECKED = re.compile(
    r"CUDA(?:RT)? Error: .{1,200} = (?P<status>\d{1,4}) \((?P<text>[^()]{3,120})\)(?: on (?P<node>[\w.-]{1,200}))?",
    re.ASCII,
)
_SAMPLE = re.compile(
    r"CUDA error at .{1,200}:\d{1,6} code=(?P<status>\d{1,4})\((?P<name>(?:cudaError|CU)\w{2,60})\)", re.ASCII
)
# A check of a result by Google's log library, which ends the program: Caffe, MXNet, TVM and those built on them.
_CHECK_FAILED = re.compile(
    r"Check failed: \w{1,40} == (?:cudaSuccess|CU[A-Z]{2,8}_STATUS_SUCCESS)(?: \|\| .{1,80}?:)? ?.{0,300}", re.ASCII
)
# PyTorch warns and sees no GPU.
_NO_DEVICES = re.compile(
    r"Unexpected error from cudaGetDeviceCount\(\).{0,300}? Error (?P<status>\d{1,4}): (?P<text>[^()]{3,120}\w)",
    re.ASCII,
)
# What the names of CUDA's errors say of the cause, where no words stand beside them.
_CAUSES = {
    "cudaErrorSystemNotReady": "fabric",
    "cudaErrorECCUncorrectable": "hardware",
    "cudaErrorNvlinkUncorrectable": "hardware",
    "cudaErrorHardwareStackError": "hardware",
    "cudaErrorIllegalAddress": "application",
    "cudaErrorLaunchFailure": "application",
    "cudaErrorMemoryAllocation": "application",
    "cudaErrorMisalignedAddress": "application",
    "cudaErrorAssert": "application",
    "cudaErrorInvalidDevice": "application",
}


def read_cuda(text: str) -> ErrorReport | None:
    """The failed call that a line names."""
    if match := _FAILURE.match(text):
        name = "nccl_error" if match["library"] == "NCCL" else "cuda_error"
        return ErrorReport(name, _shown(match), variant=variant_of("", match["text"]), node=match["node"])
    if match := _CHECKED.search(text):
        status, variant = numbers({"status": match["status"]}), variant_of("", match["text"])
        return ErrorReport("cuda_error", _shown(match), variant=variant, node=match["node"], attributes=status)
    if match := _SAMPLE.search(text):
        status, variant = numbers({"status": match["status"]}), _CAUSES.get(match["name"], "")
        return ErrorReport("cuda_error", _shown(match), variant=variant, attributes=status)
    if match := _CHECK_FAILED.search(text):
        message, glog = _shown(match), glog_of(text[: match.start()])
        return ErrorReport("cuda_error", message, variant=variant_of("", message), glog=glog)
    if match := _NO_DEVICES.search(text):
        status, variant = numbers({"status": match["status"]}), variant_of("", match["text"])
        return ErrorReport("cuda_error", _shown(match), variant=variant, attributes=status)
    return None


def _shown(match: re.Match[str]) -> str:
    return match[0].strip()[:MAX_MESSAGE]


CUDA = ErrorReader(
    name="cuda",
    signs=(
        *("CUDA failure", "Cuda failure", "NCCL failure", "CUDA Error: ", "CUDART Error: ", "CUDA error at "),
        *(" == cudaSuccess", "_STATUS_SUCCESS", "cudaGetDeviceCount"),
    ),
    read=read_cuda,
)

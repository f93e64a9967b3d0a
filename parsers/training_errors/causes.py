"""What the words of an error tell of its cause. Words that fit several causes tell none.

CUDA error: uncorrectable ECC error encountered      -> hardware
[Errno 28] No space left on device                   -> storage
remote process exited or there was a network error   -> unknown
"""

import re

_WORDS = (
    (
        "hardware",
        re.compile(
            r"uncorrectable (?:NVLink|ECC)|ECC error|hardware stack error|fallen off the bus|GPU is lost"
            r"|unable to determine the device handle|CUDA error: unknown error|device is in an unavailable state",
            re.IGNORECASE,
        ),
    ),
    (
        "storage",
        re.compile(
            r"Errno (?:5|28|30|107|116|121|122)\b|Input/output error|No space left|Disk quota exceeded"
            r"|Stale (?:NFS )?file handle|Read-only file system|Transport endpoint is not connected|Remote I/O error",
            re.IGNORECASE,
        ),
    ),
    (
        "fabric",
        re.compile(r"NET/IB|\bibv_\w{1,40}|vendor.err|IBV_WC_|transport retry|InfiniBand", re.IGNORECASE),
    ),
    (
        "application",
        re.compile(
            r"out of memory|OutOfMemory|illegal memory access|device-side assert|unspecified launch failure"
            r"|misaligned address|invalid device (?:function|ordinal)|invalid configuration argument"
            r"|out of shared memory|insufficient shared memory|size mismatch|shapes? cannot be multiplied",
            re.IGNORECASE,
        ),
    ),
)
# Python's own errors that a program makes by itself, whatever they say.
_OWN = frozenset(
    (
        "ValueError",
        "TypeError",
        "KeyError",
        "IndexError",
        "AttributeError",
        "AssertionError",
        "ImportError",
        "ModuleNotFoundError",
        "NameError",
        "ZeroDivisionError",
        "NotImplementedError",
        "UnboundLocalError",
        "RecursionError",
        "OverflowError",
        "FloatingPointError",
        "SyntaxError",
        "IndentationError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "JSONDecodeError",
        "LookupError",
        "ValidationError",
        "ConfigAttributeError",
        "OutOfMemoryError",
    )
)
# Someone stopped the program: no fault of its own.
_STOPPED = frozenset({"SignalException", "KeyboardInterrupt"})


def variant_of(name: str, message: str) -> str:
    """The variant of `training_error`: a cause, `ended`, or nothing where it is not known."""
    if name in _STOPPED:
        return "ended"
    for cause, words in _WORDS:
        if words.search(message):
            return cause
    return "application" if name in _OWN else ""

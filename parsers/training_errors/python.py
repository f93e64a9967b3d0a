"""Python's tracebacks and C++'s last words.

    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.   -> OutOfMemoryError, application
      what():  CUDA error: uncorrectable ECC error encountered                -> c10_error, hardware
    Fatal Python error: Bus error                                             -> fatal_python_error

A traceback is told by its last line, which names the error. Lines that merely mention one are left alone.
"""

import re

from parsers.training_errors.causes import variant_of
from parsers.training_errors.report import MAX_MESSAGE, Reader, Report

_RAISED = re.compile(
    r"(?:\[[^\]]{0,120}\]:? ?){0,4}(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}"
    r"(?:Error|Exception|Exit|Interrupt)): (?P<text>.*)",
    re.ASCII,
)
_WHAT = re.compile(r"\s{0,8}what\(\):  ?(?P<text>.+)", re.ASCII)
_FATAL = re.compile(r"Fatal Python error: (?P<text>.{1,200})", re.ASCII)
_UNEXPECTED = re.compile(
    r"Possible (?P<which>transient|persistent) error!"
    r"|Unexpected result .{0,200}? on rank (?P<rank>\d{1,7}) at iteration #?(?P<iteration>\d{1,12})",
    re.ASCII,
)


def read(text: str) -> Report | None:
    """The error that a line names."""
    if match := _RAISED.match(text):
        name, message = match["name"].rpartition(".")[2], f"{match['name']}: {match['text']}"
        return Report(name, message.strip()[:MAX_MESSAGE], variant=variant_of(name, message), traceback=True)
    if match := _WHAT.match(text):
        return Report("c10_error", match["text"].strip()[:MAX_MESSAGE], variant=variant_of("", match["text"]))
    if match := _FATAL.match(text):
        return Report("fatal_python_error", match[0].strip()[:MAX_MESSAGE], variant=variant_of("", match["text"]))
    if match := _UNEXPECTED.search(text):
        return _unexpected(match)
    return None


def _unexpected(match: re.Match[str]) -> Report:
    """Megatron's rerun state machine: a result that a second run did not give is the hardware's."""
    if match["which"]:
        return Report(f"{match['which']}_error", match[0], variant="hardware")
    where = {"rank": int(match["rank"]), "iteration": int(match["iteration"])}
    return Report("unexpected_result", match[0], variant="noticed", attributes=where)


READER = Reader(
    name="python",
    signs=("rror", "xception", "Exit", "Interrupt", "what():", "Unexpected result"),
    read=read,
)

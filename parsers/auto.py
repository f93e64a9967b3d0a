"""Which format a log is of, by what its first lines say.

detect(["Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> SUBNET UP"]) -> "opensm"
"""

import re
from collections.abc import Sequence

from parsers.opensm import HEADER

# How many lines to look at: a training log opens with some 1,500 lines of settings.
SAMPLE_LINES = 4000

_SACCT = re.compile(r"(?:^|\|#?)JobID\|.*(?:State|Start|End|JobName|NodeList)|(?:State|JobName)\|#?.*\|#?JobID(?:\||$)")
_SACCTMGR = re.compile(r"(?:^|\|)NodeName\|(?:.*\|)?(?:Time)?Start\|")
_TRAINING = re.compile(
    r"iteration\s+\d+/\s*\d+ \||elapsed time per iteration \(ms\)|\] datetime: \d{4}-|\bglobal_batch_size \.\.\."
    r"|(?:saving|saved|loaded) checkpoint (?:at|from)|building GPT model"
)
_KERNEL = re.compile(
    r"NVRM: |^Xid \(PCI:"
    r"|nvidia-nvswitch\d+: |\bkernel(?:\[\d+\])?: |^\d{1,5},\d+,\d+,[^;]*;|^(?:<\d+>)?\[ *\d+\.\d{6}\] "
    r"|_TRANSPORT\"? ?[:=] ?\"?kernel|^kern +:\w+ *: |\"(?:syslogtag|tag|PROGRAM)\": ?\"kernel"
    r"|^\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]"
)


def detect(sample_lines: Sequence[str]) -> str | None:
    """The name of the format that most of the lines speak for; None where none does."""
    hits = dict.fromkeys(("sacct", "sacctmgr", "dcgm", "opensm", "training", "kernel"), 0)
    for text in sample_lines:
        name = _speaks_for(text)
        if name in ("sacct", "sacctmgr"):
            return name
        if name is not None:
            hits[name] += 1
    best = max(hits, key=lambda name: hits[name])
    return best if hits[best] else None


def _speaks_for(text: str) -> str | None:
    if text.startswith(("DCGM_FI_", "# HELP DCGM_FI_", "# TYPE DCGM_FI_")):
        return "dcgm"
    if HEADER.match(text):
        return "opensm"
    if "|" in text and _SACCTMGR.search(text):
        return "sacctmgr"
    if "|" in text and _SACCT.search(text):
        return "sacct"
    if _TRAINING.search(text):
        return "training"
    return "kernel" if _KERNEL.search(text) else None

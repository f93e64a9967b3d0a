"""What launchers and log collectors put before each line of a training program, taken off.

    vm-07-14:  iteration 5/5 | ...                        pdsh: the host
     12: [2025-03-01 04:05:06] iteration 5/5 | ...        srun --label: the rank
    [rank3]: ...   [default3]: ...   [1,3]<stderr>: ...   PyTorch, torchrun (local rank), mpirun (rank)
    2025-03-01T04:05:06.123456789Z stdout F ...           a container's log (CRI); kubectl logs --timestamps; docker
    trainer/0 [default0]: ...   (Worker pid=41) ...       TorchX, Ray
    [pod/t-0/pytorch] ...   t-0  | ...                    kubectl, docker compose
    [NeMo I 2025-04-11 14:48:45 nemo_logging:393] ...     then the time that the program's own logger prints
    -> Launched(node, rank, local_rank, time, text)

Several of them may stand before one line. A time that the program prints goes before one that a collector adds.
"""

import re
from dataclasses import dataclass

# No line bears more prefixes than these.
MAX_PREFIXES = 5

_STAMP = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?"
_PREFIX = re.compile(
    r"\s{0,8}(?:\[rank(?P<rank>\d{1,7})\]:? ?"
    r"|\[[A-Za-z]\w{0,30}?(?P<local>\d{1,4})?\]:(?!\S*\]) ?"
    r"|\[(?:[\w.-]{1,80}@)?\d{1,7},(?P<mpi>\d{1,7})\]<std(?:out|err|diag)>: ?"
    r"|(?P<srun>\d{1,7}): "
    r"|(?P<node>\d{1,3}(?:\.\d{1,3}){3}"
    r"|(?!py\d|[\w.-]{1,200}?(?:Error|Exception|Warning): )[A-Za-z][\w.-]{0,200}?\d[\w.-]{0,200}): "
    r"|[\w.-]{1,80}/\d{1,5} (?=\[)"
    r"|\((?:[\w.:]{1,80} )?(?:pid=\d{1,10})(?:, ip=[\w.:]{1,60})?\) "
    r"|\[pod/[\w./-]{1,200}\] "
    r"|[\w.-]{1,80} {1,20}\| "
    r"|\[?(?P<collected>\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2}))\]? "
    r"(?:std(?:out|err) [FP] )?)",
    re.ASCII,
)
_TIME = re.compile(
    rf"\s{{0,8}}(?:\[NeMo [A-Z] (?P<nemo>{_STAMP}) [^\]]{{1,80}}\] ?"
    rf"|\[[A-Z]{{4,8}}\|[^\]\s]{{1,80}}\] (?P<hf>{_STAMP}) >> "
    rf"|(?:\[titan\] )?(?P<plain>{_STAMP})(?: - | )"
    rf"|\[(?P<bracket>{_STAMP})\] ?)",
    re.ASCII,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")


@dataclass(slots=True)
class Launched:
    """A line without its prefixes, and what they told. `time` is text still."""

    text: str
    node: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    time: str | None = None


def launched(text: str) -> Launched:
    """The line that the program printed."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    line = Launched(text)
    for _ in range(MAX_PREFIXES):
        match = _PREFIX.match(line.text)
        if not match or (match["node"] and line.node):
            break
        _note(line, match)
        line.text = line.text[match.end() :]
    if match := _TIME.match(line.text):
        line.time = match["nemo"] or match["hf"] or match["plain"] or match["bracket"]
        line.text = line.text[match.end() :]
    return line


def _note(line: Launched, match: re.Match[str]) -> None:
    """Keep what a prefix tells."""
    line.node = line.node or match["node"]
    rank = match["rank"] or match["mpi"] or match["srun"]
    if rank is not None:
        line.rank = int(rank)
    if match["local"] is not None:
        line.local_rank = int(match["local"])
    line.time = match["collected"] or line.time

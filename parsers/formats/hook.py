"""Lines of Foreshock's training hook (`foreshock_hook/hook.py`): what a training program itself says of its work.

    {"foreshock_hook": 1, "time": "2025-03-01T04:05:06.789012Z", "run": "run-7", "what": "step", "iteration": 100,
     "iterations": 10, "elapsed_ms": 317.1, "data_ms": 12.5, "rank": 0, "node": "gpu-017"}
    -> {"kind": "iteration", "time": "2025-03-01T04:05:06.789012Z", "node": "gpu-017",
        "attributes": {"run": "run-7", "iteration": 100, "iterations": 10, "elapsed_ms": 317.1, ...}, ...}

`elapsed_ms` and `data_ms` (waiting for data, part of it) are of each iteration; `lost` lines were not written before.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from parsers.text.documents import object_of
from parsers.text.json_fields import attributes, moment_of, text_of
from parsers.text.parser import Context, Format, FormatSigns, ParseError
from parsers.training.error_report import variant_of
from store.records.event import Event
from store.records.fault_catalog import with_kind_meaning

SIGN = '"foreshock_hook"'
# What the hook writes, and the kind that it is.
_KINDS: Mapping[str, str] = {
    "start": "training_start",
    "step": "iteration",
    "save_begin": "checkpoint_save_start",
    "save": "checkpoint_save",
    "load": "checkpoint_load",
    "eval": "evaluation",
    "phase": "training_phase",
    "error": "training_error",
    "end": "training_end",
}
# What is begun is known when it ends; a save that failed is one that never ended.
_UNTOLD = frozenset({"load_begin", "eval_begin", "save_failed"})
_FIGURES = (
    "iteration",
    "iterations",
    "elapsed_ms",
    "data_ms",
    "duration_ms",
    "async",
    "blocking_ms",
    "phase",
    "error",
    "rank",
    "lost",
)
# What PyTorch appends to each error of CUDA: it says nothing of this one.
_ADVICE = re.compile(
    r"\n?(?:Search for `cuda|CUDA kernel errors might|For debugging consider passing|Compile with `TORCH_USE)[^\n]*"
)


class HookParser:
    """Decodes lines of the hook. Holds nothing."""

    holds = False

    def __init__(self, context: Context) -> None:
        self._context = context

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of one line.

        Raises:
            ParseError: the line is no whole JSON, or bears no time.
        """
        begin = text.find("{")
        if SIGN not in text or begin < 0:
            return []
        record = object_of(text[begin:].strip())
        if record is None:
            raise ParseError("a line of the training hook is no whole JSON: the program was killed while it wrote it")
        return self._event(record, line)

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return ()

    def _event(self, record: Mapping[str, Any], line: int) -> list[Event]:
        what = text_of(record, "what") or ""
        kind, time = _KINDS.get(what), moment_of(record, "time")
        if what in _UNTOLD:
            return []
        if kind is None:
            raise ParseError(f"the training hook writes no {what[:40]!r}: is this Foreshock older than the hook?")
        if time is None:
            raise ParseError("a line of the training hook bears no time")
        fields = attributes(run=text_of(record, "run") or self._context.run, **{k: record.get(k) for k in _FIGURES})
        at = "" if fields.get("iteration") is None else f" {fields['iteration']}"
        event = Event(
            time=time,
            node=text_of(record, "node") or self._context.node,
            source="hook",
            kind=kind,
            message=_ADVICE.sub("", text_of(record, "message") or "").strip() or f"{what}{at}",
            attributes=fields,
            line=line,
        )
        if kind == "training_error":
            return [with_kind_meaning(event, variant_of(str(fields.get("error")), event.message))]
        return [with_kind_meaning(event) if kind == "training_phase" else event]


FORMAT = Format(
    name="hook",
    description="Foreshock's hook in a training program",
    sample='{"foreshock_hook": 1, "time": "2025-03-01T04:05:06.789012Z", "run": "run-7", "what": "step", '
    '"iteration": 100, "iterations": 10, "elapsed_ms": 317.1, "data_ms": 12.5, "rank": 0, "node": "gpu-017"}',
    make=HookParser,
    testimony="iterations",
    recognises=re.compile(r'"foreshock_hook" ?: ?1\b'),
    signs=FormatSigns((SIGN,)),
)

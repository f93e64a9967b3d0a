"""Cycles of a training job under NVIDIA's resiliency extension: the `cycle_info.JOB.ATTEMPT.CYCLE` files it writes.

    {"job_id": "1234", "attempt_index": 0, "cycle_number": 1, "cycle_start_time": "2025-03-01T04:05:06.789Z",
     "cycle_end_time": "", "active_nodes": "gpu-[001-016]", "standby_nodes": "gpu-017", "active_ranks": "0-127", ...}
    -> {"kind": "cycle_start", "attributes": {"run": "1234", "cycle": 1, "nodes": "gpu-[001-016]", ...}, ...}

A cycle is one start of the worker processes; each after the first stands for one that failed. A file is written when
its cycle begins and again when it ends. Schema: NVRxCycleInfo of nvrx_interface.proto and cycle_info_writer.py in
NVIDIA/nvidia-resiliency-ext, which bears no reason of a failure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from parsers.reports.reported_states import ReportedStates
from parsers.text.documents import Document, DocumentParser
from parsers.text.json_fields import attributes, moment_of, text_of, whole_of
from parsers.text.parser import Context, Format
from store.records.event import Event
from store.records.fault_catalog import with_kind_meaning

# protobuf's JSON writes either form of a field's name.
_CAMEL = re.compile(r"(?<=[a-z])([A-Z])")
# Where a file's name is taken for its run, these files bear none.
_FILE = "cycle_info"


class NvrxParser(DocumentParser):
    """Decodes cycles. Remembers which starts were reported: a file's second writing repeats the first one's."""

    def __init__(self, context: Context) -> None:
        super().__init__(self._cycle)
        self._context = context
        self._reported = ReportedStates()

    def _cycle(self, document: Document) -> Iterable[Event]:
        record = {_CAMEL.sub(lambda match: f"_{match[1].lower()}", key): value for key, value in document.value.items()}
        if "cycle_number" not in record and "cycle_start_time" not in record:
            return []
        return list(self._events(record, document.line))

    def _events(self, record: Mapping[str, Any], line: int) -> Iterator[Event]:
        cycle, attempt = whole_of(record.get("cycle_number")) or 0, whole_of(record.get("attempt_index")) or 0
        job = text_of(record, "job_id")
        known = attributes(
            run=(self._context.run if self._context.run != _FILE else None) or job,
            job=job,
            attempt=attempt,
            cycle=cycle,
            nodes=text_of(record, "active_nodes"),
            standby_nodes=text_of(record, "standby_nodes"),
            ranks=text_of(record, "active_ranks"),
            log_file=text_of(record, "cycle_log_file"),
        )
        key = (job or "", str(attempt), str(cycle))
        for kind, field in (("cycle_start", "cycle_start_time"), ("cycle_end", "cycle_end_time")):
            time = moment_of(record, field)
            if time is None or not self._reported.changed((*key, kind), (time.isoformat(),)):
                continue
            what = "begins" if kind == "cycle_start" else "ends"
            event = Event(
                time=time,
                node=None,
                source="nvrx",
                kind=kind,
                message=f"cycle {cycle} of job {job or '?'} {what}",
                attributes=known,
                line=line,
            )
            yield with_kind_meaning(event, "restart" if kind == "cycle_start" and cycle > 0 else "")


FORMAT = Format(
    name="nvrx",
    description="cycle_info files of NVIDIA's resiliency extension (NVRx)",
    sample='{"job_id": "1234", "attempt_index": 0, "cycle_number": 1, "cycle_start_time": '
    '"2025-03-01T04:05:06.789012Z", "cycle_end_time": "", "cycle_log_file": "/logs/train_cycle1.log", '
    '"active_nodes": "gpu-[001-016]", "standby_nodes": "gpu-017", "generation": 0, "active_ranks": "0-127"}',
    make=NvrxParser,
    testimony="starts",
    recognises=re.compile(r'"cycle_?(?:[Ss]tart_?[Tt]ime|[Ee]nd_?[Tt]ime|[Nn]umber|[Ll]og_?[Ff]ile)" ?:'),
    shape="document",
)

"""Every kind of source: the scheme of a SPEC to the collector that reads it. A new one is a file and a line here.

A collector is loaded when a SPEC names it: a sidecar that reads the kernel log alone does not hold the rest.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from collectors.collector import Collector, SourceError, SourceSettings


@dataclass(frozen=True, slots=True)
class Scheme:
    """Where a collector is, and the form of its SPEC; the class is made with what follows the scheme's colon."""

    module: str  # under collectors/sources/
    name: str  # of the class, or of the function that chooses one
    form: str  # what users write


SCHEMES: Mapping[str, Scheme] = {
    "kmsg": Scheme("kmsg", "KmsgCollector", "kmsg"),
    "journal": Scheme("journal", "JournalCollector", "journal[:DIR]"),
    "file": Scheme("file", "file_collector", "file:PATH[:FORMAT]"),
    "exec": Scheme("exec", "ExecCollector", "exec:FORMAT:COMMAND"),
    "infiniband": Scheme("infiniband", "InfinibandCollector", "infiniband[:DIR]"),
    "scrape": Scheme("scrape", "ScrapeCollector", "scrape:URL"),
    "nvml": Scheme("nvml", "NvmlCollector", "nvml"),
    "subnet": Scheme("subnet", "SubnetCollector", "subnet[:PATH]"),
    "rings": Scheme("rings", "RingsCollector", "rings[:DIR]"),
    "nvrx": Scheme("nvrx", "CycleFilesCollector", "nvrx:DIR"),
    "checkpoints": Scheme("checkpoints", "CheckpointsCollector", "checkpoints:DIR"),
    "ranks": Scheme("ranks", "RanksCollector", "ranks:DIR"),
    "flight": Scheme("flight", "FlightCollector", "flight:DIR"),
    "ncclras": Scheme("ncclras", "NcclrasCollector", "ncclras[:HOST:PORT]"),
    "syslog": Scheme("syslog", "SyslogCollector", "syslog:HOST:PORT"),
    "redfish": Scheme("redfish", "RedfishCollector", "redfish:FILE"),
    "prometheus": Scheme("prometheus", "PrometheusCollector", "prometheus:URL"),
}


def forms() -> str:
    """Every form of a SPEC, as one half of a sentence."""
    *first, last = (scheme.form for scheme in SCHEMES.values())
    return f"{', '.join(first)} or {last}"


def make_collector(spec: str, settings: SourceSettings) -> Collector:
    """The collector of a SPEC (`kmsg`, `file:PATH:FORMAT`, `scrape:URL` ...).

    Raises:
        SourceError: the SPEC is not understood; the message says what would be.
    """
    name, _colon, rest = spec.partition(":")
    scheme = SCHEMES.get(name)
    if scheme is None:
        raise SourceError(f"{spec!r} is no source: use {forms()}")
    made = getattr(importlib.import_module(f"collectors.sources.{scheme.module}"), scheme.name)(rest, settings)
    return cast("Collector", made)

"""The formats that Foreshock reads: one line here, one file beside it, one fixture pair.

`auto` asks them in this order, so a form that another could be taken for comes first.
"""

from collections.abc import Mapping

from parsers import (
    amd,
    cambricon,
    dcgm,
    fabricmanager,
    iblinkinfo,
    ibnetdiscover,
    ibqueryerrors,
    kernel,
    node_exporter,
    npu,
    opensm,
    perfquery,
    sacct,
    sacctmgr,
    training,
)
from parsers.parser import Format

_FORMATS = (
    dcgm.FORMAT,
    npu.FORMAT,
    node_exporter.FORMAT,
    cambricon.FORMAT,
    amd.FORMAT,
    opensm.FORMAT,
    ibqueryerrors.FORMAT,
    iblinkinfo.FORMAT,
    ibnetdiscover.FORMAT,
    perfquery.FORMAT,
    sacctmgr.FORMAT,
    sacct.FORMAT,
    training.FORMAT,
    fabricmanager.FORMAT,
    kernel.FORMAT,
)

PARSERS: Mapping[str, Format] = {entry.name: entry for entry in _FORMATS}

"""The formats that Foreshock reads: one line here, one file beside it, one fixture pair.

`auto` asks them in this order, so a form that another could be taken for comes first.
"""

from collections.abc import Mapping

from parsers import dcgm, fabricmanager, kernel, opensm, sacct, sacctmgr, training
from parsers.parser import Format

_FORMATS = (
    dcgm.FORMAT,
    opensm.FORMAT,
    sacctmgr.FORMAT,
    sacct.FORMAT,
    training.FORMAT,
    fabricmanager.FORMAT,
    kernel.FORMAT,
)

PARSERS: Mapping[str, Format] = {entry.name: entry for entry in _FORMATS}

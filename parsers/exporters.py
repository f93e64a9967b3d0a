"""The exporters whose pages hold samples of a node's devices, and whose page it is.

samples_of(page, context) -> [Sample(type="npu", gpu=3, values={"gpu_temp_c": 46.0}, source="npu", ...), ...]
"""

from parsers import amd, cambricon, dcgm, node_exporter, npu
from parsers.device_page import Exporter, device_samples, samples_of_lines
from parsers.parser import Context
from store.telemetry import Sample

EXPORTERS: tuple[Exporter, ...] = (dcgm.EXPORTER, npu.EXPORTER, amd.EXPORTER, cambricon.EXPORTER)


def samples_of(text: str, context: Context) -> list[Sample]:
    """The accelerators' samples of a page, whichever exporters wrote it: a proxy's page may hold those of several.

    Raises:
        ParseError: a sample bears no time, or no host, and the context names none.
    """
    return samples_of_lines(EXPORTERS, text, context)


def devices_of(text: str, context: Context) -> list[Sample]:
    """The samples of every device of a page: accelerators and their switches, and what node_exporter knows of the host.

    Raises:
        ParseError: as `samples_of`.
    """
    return device_samples((*EXPORTERS, node_exporter.EXPORTER), text, context)

"""Who reads the endings: one line here, one file beside it. Tried in this order."""

from parsers.training_errors import launchers, nccl, python, slurm, torchrun
from parsers.training_errors.report import Reader, Report

READERS: tuple[Reader, ...] = (
    slurm.READER,
    nccl.READER,
    torchrun.READER,
    launchers.READER,
    python.READER,
)
SIGNS = tuple(sign for reader in READERS for sign in reader.signs)


def report_of(text: str) -> Report | None:
    """What a line tells of an attempt's end, or None. The text is without launcher prefix and time."""
    for reader in READERS:
        if any(sign in text for sign in reader.signs) and (report := reader.read(text)):
            return report
    return None

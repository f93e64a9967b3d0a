"""The figures as a file for node_exporter's textfile collector, for nodes where no further port may be opened."""

from pathlib import Path

from collectors.metrics import SidecarMetrics
from collectors.segments import write_atomically


class TextFile:
    """`--textfile PATH.prom`: written whole or not at all; others may read it. node_exporter adds its own time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, metrics: SidecarMetrics) -> None:
        """Replace the file. It lacks `process_*`: those names are node_exporter's own on that page.

        Raises:
            OSError: it cannot be written; the old one stays.
        """
        write_atomically(self._path, metrics.page(process=False), mode=0o644)

    def remove(self) -> None:
        """A sidecar that has ended has no figures."""
        self._path.unlink(missing_ok=True)

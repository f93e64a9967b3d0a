"""Everything that a sidecar is told."""

from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path

from collectors.collector import SourceSettings
from collectors.supervisor import Source
from collectors.transport import Access, Compress
from parsers.rules import RulesSource

DEFAULT_PORT = 10871
REQUEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """Times in seconds, sizes in bytes; `port` 0 serves no metrics, `spool_fsync_s` 0 syncs each append."""

    server: str | tuple[str, ...]
    node: str
    sources: tuple[str | Source, ...]
    spool: Path
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    compress: Compress = "zstd"
    listen: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    textfile: Path | None = None
    zone: tzinfo = field(default=UTC)
    scrape_interval_s: float = 15.0
    rollup_interval_s: float = 300.0
    heartbeat_interval_s: float = 60.0
    turn_limit_s: float = 60.0
    spool_max_bytes: int = 256 * 1024 * 1024
    spool_fsync_s: float = 0.0
    linger_s: float = 0.05
    rules: Path | None = None
    log_level: str = "info"

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the server."""
        return (self.server,) if isinstance(self.server, str) else self.server

    @property
    def access(self) -> Access:
        """How they are talked to."""
        files = (self.ca_file, self.cert_file, self.key_file)
        return Access(self.token_file, REQUEST_TIMEOUT_S, *files, self.compress)

    def list_sources(self) -> tuple[Source, ...]:
        """What is read."""
        return tuple(Source(source) if isinstance(source, str) else source for source in self.sources)

    def for_sources(self, rules: RulesSource | None) -> SourceSettings:
        """What the sources must know of it."""
        return SourceSettings(
            node=self.node,
            zone=self.zone,
            scrape_interval_s=self.scrape_interval_s,
            rollup_interval_s=self.rollup_interval_s,
            rules=rules,
        )

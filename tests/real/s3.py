"""A real S3 server on the loopback: moto's, of its package in an environment of its own.

with s3_server(tmp_path) as url:
    pyarrow.fs.S3FileSystem(endpoint_override=url, access_key="a", secret_key="b")
"""

import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from real.cached_programs import cached_environment
from real.foreshock import free_port
from real.programs import bound, stop, wait_for

PACKAGES = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5", "duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5")


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Its address; what is stored lies in its memory."""
    programs = cached_environment("s3", PACKAGES) / "bin"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "s3.log").open("wb") as log:
        command = bound([programs / "moto_server", "-H", "127.0.0.1", "-p", str(port)])
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for("the S3 server answers", lambda: process.poll() is not None or _answers(url))
        assert process.poll() is None, (folder / "s3.log").read_text()[-500:]
        yield url
    finally:
        stop(process, signal.SIGTERM)


def duckdb_python() -> str:
    """The python of an environment with a DuckDB and its extension for S3, which need no download then."""
    return str(cached_environment("s3", PACKAGES) / "bin" / "python")


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False

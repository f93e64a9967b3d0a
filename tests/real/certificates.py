"""Certificates as openssl makes them: an authority, and what it signs.

authority = Authority.make(tmp_path)
server = authority.sign("server", "IP:127.0.0.1")     # server.pem, server.key
client = authority.sign("client", "DNS:gpu-017")
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from real.programs import need

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, in PEM."""

    pem: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """What signs certificates; `pem` is what others trust."""

    folder: Path
    name: str

    @classmethod
    def make(cls, folder: Path, name: str = "authority") -> "Authority":
        """A new one."""
        made = cls(folder, name)
        _openssl("req", "-x509", *_EC, "-keyout", folder / f"{name}.key", "-out", made.pem, "-subj", f"/CN={name}")
        return made

    @property
    def pem(self) -> Path:
        """Its own certificate."""
        return self.folder / f"{self.name}.pem"

    def sign(self, name: str, alternatives: str) -> Certificate:
        """A certificate with a subjectAltName; the same name again gives another certificate in its place."""
        made = Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, names = self.folder / f"{name}.csr", self.folder / f"{name}.san"
        names.write_text(f"subjectAltName={alternatives}")
        _openssl("req", *_EC, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        authority = ("-CA", self.pem, "-CAkey", self.folder / f"{self.name}.key", "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *authority, "-extfile", names, "-days", "1", "-out", made.pem)
        return made


def _openssl(*words: str | Path) -> None:
    subprocess.run([need("openssl", "openssl"), *words], check=True, capture_output=True)

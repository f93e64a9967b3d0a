"""TLS of `foreshock serve`: one context that listens, and whose certificate is renewed while connections stay.

    tls = ServerTls(settings.tls)     # as uvicorn takes a context
    tls.renew()                       # every second: reads the files again where one has changed

A connection keeps the certificate that it began with. Files that do not fit together (a renewal in the middle, a key
of another certificate) are refused, and the pair of before stays.
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.server.settings import TlsSettings
from cli.console.errors import Failure
from cli.console.files import file_stamp

# ASGI's name for what a server knows of a connection's TLS; `client_names` is ours.
EXTENSION = "tls"
CLIENT_NAMES = "client_names"
_CHECKS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_log = logging.getLogger("foreshock.tls")


class ServerTls(ssl.SSLContext):
    """The context of a listening socket: it takes each new connection with the newest certificate.

    `problem` says why the files as they are now are not in force; None while they are. `errors` counts.
    """

    errors = 0
    problem: str | None = None

    def __new__(cls, _settings: TlsSettings) -> "ServerTls":
        """A context that itself holds no certificate."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, settings: TlsSettings) -> None:
        """Read the files.

        Raises:
            Failure: one cannot be read or used; names the key and the remedy.
        """
        super().__init__()
        self.settings = settings
        self._stamp = _stamp_of(settings)
        self._newest = read_tls(settings)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """A new connection: asyncio begins it here."""
        return self._newest.wrap_bio(*arguments, **options)

    def take(self, settings: TlsSettings) -> None:
        """Serve with these files from now on.

        Raises:
            Failure: one cannot be read or used; those of before stay.
        """
        stamp = _stamp_of(settings)
        self._newest = read_tls(settings)
        self.settings, self._stamp, self.problem = settings, stamp, None

    def renew(self) -> None:
        """Read the files again where one has changed; what does not fit is said once, and what was in force stays."""
        stamp = _stamp_of(self.settings)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._newest = read_tls(self.settings)
        except Failure as error:
            self.errors += 1
            self.problem = error.message
            _log.error("the certificate of before stays in force: %s", error.message)
            return
        self.problem = None
        _log.warning("%s: the certificate was renewed", self.settings.certificate)


def read_tls(settings: TlsSettings) -> ssl.SSLContext:
    """A context of the files.

    Raises:
        Failure: one cannot be read or used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    certificate, key = settings.certificate, settings.key
    if certificate is None:
        raise Failure("tls, certificate: give the file of the server's certificate (PEM)")
    _readable("certificate", certificate)
    if key is not None:
        _readable("key", key)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        pair = f"{certificate}" + ("" if key is None else f" and {key}")
        raise Failure(
            f"tls, certificate and key: {pair} do not fit together: {_said(error)}: "
            "give a certificate in PEM (with its chain) and its own key, without a password"
        ) from error
    if settings.client_ca is not None:
        _readable("client_ca", settings.client_ca)
        try:
            context.load_verify_locations(settings.client_ca)
        except ssl.SSLError as error:
            raise Failure(
                f"tls, client_ca: {settings.client_ca} holds no certificate of an authority in PEM: {_said(error)}"
            ) from error
    context.verify_mode = _CHECKS[settings.client]
    return context


def _readable(key: str, file: Path) -> None:
    try:
        with file.open("rb"):
            return
    except OSError as error:
        raise Failure(f"tls, {key}: cannot read {file}: {error.strerror}") from error


def _no_password() -> str:
    """Asked for one, OpenSSL would read it from the terminal, and the server wait for ever."""
    raise ValueError("the key is encrypted")


def _said(error: Exception) -> str:
    reason = getattr(error, "reason", None) or str(error)
    return str(reason).lower().replace("_", " ")


def _stamp_of(settings: TlsSettings) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes when a file does; None: it is not there."""
    return tuple(
        file_stamp(file) for file in (settings.certificate, settings.key, settings.client_ca) if file is not None
    )


def extension_of(get: Callable[[str], Any]) -> dict[object, object] | None:
    """What a request's scope says of its connection, under `extensions`, `tls`; None where there is no TLS.

    `client_names` are the DNS names of the client's certificate (its subjectAltName), where the server asked for one
    and an authority of `client_ca` signed it. A common name counts for nothing: RFC 9525 has done away with it.

    Args:
        get: a transport's `get_extra_info`.
    """
    connection = get("ssl_object")
    if connection is None:
        return None
    certificate = connection.getpeercert() or {}  # empty unless it was asked for and verified
    names = [str(name) for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return {CLIENT_NAMES: tuple(names), "tls_version": connection.version()}

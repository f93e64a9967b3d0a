"""Where a token may be sent: over TLS, or to this machine itself. Everything of ours that bears one asks here first.

    why = clear_text("http://foreshock:10870")     # a sentence with the remedy; None for https:// and the loopback

Whoever listens on the way to an `http://` address reads the token, and is from then on who it speaks for.
"""

import ipaddress
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl
    from urllib.request import OpenerDirector

# What a client is told that it does not matter: something else encrypts the way (a mesh, a tunnel).
INSECURE_OPTION = "--insecure-http"
_SAFE = {"http": "https", "nats": "tls", "ws": "wss"}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def clear_text(url: str) -> str | None:
    """Why a token may not be sent to an address; None where it may, and where the address is none at all."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:  # who uses it says that it is no address
        return None
    if parts.scheme not in _SAFE or is_loopback(host):
        return None
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return f"{shown} would carry the token in clear text: use {_SAFE[parts.scheme]}:// there (docs/tls.md)"


def shared_secret(file: Path | None) -> str | None:
    """Why a secret in a file is none: every user of the machine may read it. None where they may not, or none is there.

    It is a warning, and no refusal: a fleet whose agents stop over a file's mode sees nothing any more.
    """
    try:
        mode = 0 if file is None else stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return None
    if not mode & stat.S_IROTH:
        return None
    return f"{file} can be read by every user of this machine (mode {mode:04o}): chmod 0600 {file}"


def token_opener(context: "ssl.SSLContext | None" = None) -> "OpenerDirector":
    """urllib, but it follows no redirect: it would send the token along, wherever that leads. A 302 is an HTTPError."""
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener  # the sidecar does without them

    class _NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: object, **_more: object) -> None:
            """No other address."""

    return build_opener(_NoRedirect, HTTPSHandler(context=context))

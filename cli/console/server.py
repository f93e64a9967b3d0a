"""How a command asks a server's API: the options that name it, its token and certificates, and the request itself."""

import ssl
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError

import click
import orjson

from cli.console.errors import Failure
from cli.console.files import secret_file
from collectors.ship.transport import ServerAccess
from wire.access.address import INSECURE_OPTION, token_opener

_MOST_ERROR_BYTES = 65_536
_CA_REMEDY = "name the authority that signed it with --ca-file, and the host as the certificate does"
_PATH = click.Path(path_type=Path)
_OPTIONS = (
    click.option(
        "--server", envvar="FORESHOCK_SERVER", required=True, help="The server, such as https://foreshock:10870."
    ),
    click.option("--token-file", type=_PATH, envvar="FORESHOCK_TOKEN_FILE", help="File with a token of scope `read`."),
    click.option("--ca-file", type=_PATH, envvar="FORESHOCK_CA_FILE", help="Authorities to trust for https."),
    click.option("--cert-file", type=_PATH, envvar="FORESHOCK_CERT_FILE", help="Client certificate (and key) in PEM."),
    click.option("--key-file", type=_PATH, envvar="FORESHOCK_KEY_FILE", help="The client certificate's key."),
    click.option(
        "--insecure-http", is_flag=True, envvar="FORESHOCK_INSECURE_HTTP", help="Send the token over http:// too."
    ),
)
Command = TypeVar("Command", bound=Callable[..., Any])


def server_options(command: Command) -> Command:
    """Give a command these options; `access_of` takes all but `server`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def access_of(timeout_s: float, insecure_http: bool, **files: Path | None) -> ServerAccess:
    """How the server is talked to, by the options."""
    certificates = (files["ca_file"], files["cert_file"], files["key_file"])
    return ServerAccess(files["token_file"], timeout_s, *certificates, insecure_http=insecure_http)


def open_api(server: str, access: ServerAccess, path: str, headers: Mapping[str, str] | None = None) -> HTTPResponse:
    """The answer of a GET of the API: `hints?node=gpu-017`.

    Raises:
        Failure: the address is none, or the token may not go there.
        OSError: there is no answer, or it is a refusal (`HTTPError`), or the token's file gives none.
    """
    if (why := access.refusal(server)) is not None:
        raise Failure(f"--server: {why}; or {INSECURE_OPTION}, where a mesh or tunnel encrypts the way")
    if not server.startswith(("http://", "https://")):
        raise Failure(f"--server {server}: expected an address such as https://foreshock:10870")
    url = f"{server.rstrip('/')}/api/v1/{path}"
    request = urllib.request.Request(url, headers=dict(headers or {}))  # noqa: S310 - http or https
    if access.token_file is not None:
        request.add_header("Authorization", f"Bearer {_token(access.token_file)}")
    context = ssl.create_default_context(cafile=access.ca_file) if server.startswith("https://") else None
    if context is not None and access.cert_file is not None:
        context.load_cert_chain(access.cert_file, access.key_file)
    answer: HTTPResponse = token_opener(context).open(request, timeout=access.timeout_s)
    return answer


class TokenFileError(OSError):
    """A token's file that gives none: a health check goes on without an answer, as where no server is there."""


def _token(file: Path) -> str:
    try:
        return secret_file(file, "--token-file")
    except Failure as error:
        raise TokenFileError(error.message) from error


def what_failed(error: Exception, server: str, access: ServerAccess) -> str:
    """Why a request came to nothing, by the option that is to blame, with the server's own word where it gave one."""
    if isinstance(error, TokenFileError):
        return str(error)
    if isinstance(error, HTTPError):
        said = _told(error)
        if error.code == HTTPStatus.UNAUTHORIZED and access.token_file is not None:
            return f"--token-file: the token in {access.token_file} is refused ({said}): write a known one into it"
        remedy = ": give one with --token-file" if error.code == HTTPStatus.UNAUTHORIZED else ""
        return f"--server {server}: {said}{remedy}"
    if isinstance(error, URLError):
        if isinstance(error.reason, ConnectionRefusedError):
            return f"--server {server}: nothing listens there: start it with `foreshock serve`, or correct --server"
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            return f"--server {server}: its certificate is refused ({error.reason.verify_message}): {_CA_REMEDY}"
        return f"--server {server}: {error.reason}"
    return f"--server {server}: {str(error) or type(error).__name__}"


def _told(error: HTTPError) -> str:
    """A refusal by its status and the server's own word."""
    with error:
        try:
            return f"{error.code}: {orjson.loads(error.read(_MOST_ERROR_BYTES))['detail']}"
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return f"it answered {error.code}"

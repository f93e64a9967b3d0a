"""The tokens of a configuration: read, and refused where anybody knows them or mode `act` would be open to one node.

    tokens:
      - {name: rack7, sha256: 5c1d..., scopes: [ingest], node: "gpu-[001-064]"}
      - {name: nodes, certificate: true, scopes: [ingest]}       # the DNS names of a client's certificate are the nodes

The digest of a short text that can be guessed cannot be told from another: `foreshock token new` makes one that cannot.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.server.settings import SCOPE_GROUPS, SCOPES, Token, expand_scopes
from cli.config.fill import check_keys, listed, mapping
from cli.console.errors import Failure
from cli.console.files import secret_file
from schedulers.policy.settings import Policy
from store.nodes.tokens import digest_of
from store.records.event import RecordError
from store.records.hostlist import EVERY_NODE, NodePattern

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MIN_TOKEN = 16
_KEYS = ("name", "sha256", "scopes", "node", "certificate")
_REMEDY = "make a token that nobody can guess: `foreshock token new NAME --scope ...`, or `openssl rand -hex 32`"
_log = logging.getLogger("foreshock.tokens")
# Words that people put for a token while they try something out, and the texts of examples. Their digests work for
# everybody who reads this list.
_WORDS = (  # noqa: SIM905  # a list literal would have a line for each
    "0 1 12 123 1234 12345 123456 1234567 12345678 123456789 1234567890 test test1 test123 testing data demo dev prod "
    "example sample admin administrator root user guest operator default none null nil true false password passwd pass "
    "pwd Password password1 password123 passw0rd P@ssw0rd hunter2 changeme change-me change_me ChangeMe CHANGEME "
    "changeit replaceme replace-me REPLACE_ME secret Secret supersecret topsecret secret123 mysecret token TOKEN Token "
    "mytoken my-token your-token YOUR_TOKEN apikey api-key api_key key bearer Bearer letmein foreshock Foreshock "
    "foreshock123 sidecar sidecars dashboard ingest read act report abc abc123 abcdef foo bar foobar hello welcome "
    "qwerty qwertz asdf iloveyou xxx xxxx xxxxxxxx todo TODO fixme insecure local localhost gpu cluster slurm "
    "node nodes prometheus grafana alertmanager kubernetes nvidia monitor monitoring"
).split()
_REFUSED = {digest_of(word + end): word for word in ("", *_WORDS) for end in ("", "\n")} | dict.fromkeys(
    ("0" * 64, "f" * 64), "a placeholder"
)


def read_tokens(values: Sequence[Any], place: str, environ: Mapping[str, str]) -> tuple[Token, ...]:
    """The tokens of a list, and that of the environment.

    Raises:
        Failure: one does not fit, or everybody knows it; names place and key.
    """
    found = [_token(item, f"{place}, tokens[{number}]") for number, item in enumerate(values)]
    return (*found, *_environment_token(environ))


def _token(item: Any, place: str) -> Token:
    table = mapping(item, place)
    check_keys(table, _KEYS, place)
    name = table.get("name")
    scopes = listed(table.get("scopes"), f"{place}, scopes")
    if not isinstance(name, str) or not name:
        raise Failure(f"{place}: a token needs a name, which the audit shows")
    certificate = table.get("certificate", False)
    if not isinstance(certificate, bool):
        raise Failure(f"{place}, certificate: expected true or false")
    digest = _no_digest(table, place) if certificate else _digest(table.get("sha256"), place)
    expected = f"{place}, scopes: expected one or more of {', '.join((*SCOPES, *SCOPE_GROUPS))}"
    if not scopes or not all(isinstance(scope, str) for scope in scopes):
        raise Failure(expected)
    try:
        granted = expand_scopes(scopes)
    except ValueError as error:
        raise Failure(expected) from error
    nodes, says = _nodes(table.get("node"), place), certificate or table.get("node") is not None
    return Token(name, digest, granted, nodes, certificate, says or not _speaks(granted))


def _digest(value: Any, place: str) -> str:
    digest = str(value or "").strip().lower()
    if not _SHA256.fullmatch(digest):
        raise Failure(f"{place}, sha256: expected 64 hex digits, of `printf %s TOKEN | sha256sum`: {_REMEDY}")
    if digest in _REFUSED:
        word = _REFUSED[digest].strip()
        text = f"the SHA-256 of {word!r}, which everybody knows" if word else "the SHA-256 of nothing"
        raise Failure(f"{place}, sha256: this is {text}: {_REMEDY}")
    return digest


def _no_digest(table: Mapping[str, Any], place: str) -> str:
    for key in ("sha256", "node"):
        if table.get(key) is not None:
            raise Failure(f"{place}, {key}: does not go together with `certificate: true`, which says it: take it out")
    return ""


def _nodes(value: Any, place: str) -> NodePattern:
    """Of which nodes a token may speak; every node, where nothing is said."""
    if value is None:
        return EVERY_NODE
    if not isinstance(value, str):
        raise Failure(f'{place}, node: expected a text: gpu-017, gpu-[001-064] or "gpu-*"')
    try:
        return NodePattern.of(value)
    except RecordError as error:
        raise Failure(f"{place}, node: {error}") from error


def _speaks(scopes: Iterable[str]) -> bool:
    """Whether a token reports what happens on nodes."""
    return "ingest" in scopes


def _environment_token(environ: Mapping[str, str]) -> list[Token]:
    text = secret(environ, "FORESHOCK_TOKEN")
    if text is None:
        return []
    if len(text) < _MIN_TOKEN:
        raise Failure(f"FORESHOCK_TOKEN has under {_MIN_TOKEN} characters: make one with `openssl rand -hex 32`")
    pattern = environ.get("FORESHOCK_TOKEN_NODE") or None
    nodes = _nodes(pattern, "FORESHOCK_TOKEN_NODE")
    scopes = frozenset(SCOPES) - {"on_behalf"}
    return [Token("environment", digest_of(text), scopes, nodes, names_nodes=pattern is not None)]


def check_mode(policy: Policy, tokens: Sequence[Token], place: str) -> None:
    """Refuse mode `act` while a token speaks for every node and nobody has said that it shall.

    Raises:
        Failure: names the token and the remedy.
    """
    if policy.mode != "act":
        return
    for token in tokens:
        if token.names_nodes:
            continue
        if token.name == "environment":
            remedy = 'take FORESHOCK_TOKEN away, or set FORESHOCK_TOKEN_NODE="*" if no sidecar has it'
        else:
            remedy = f'write `node:` beside token {token.name!r}: "gpu-*", "gpu-[001-064]", or "*" if you mean that'
        raise Failure(
            f"{place}, mode: act is refused while token {token.name!r} may report faults of every node, so that one "
            f"node's root can have all others held: {remedy}"
        )


def unbound(tokens: Iterable[Token]) -> list[str]:
    """The names of the tokens that speak for every node though nobody has said so."""
    return [token.name for token in tokens if not token.names_nodes]


def warn_unbound(tokens: Iterable[Token]) -> None:
    """Say in the log which tokens those are."""
    for name in unbound(tokens):
        _log.warning(
            "token %r may report faults of every node: write of which ones it speaks (node:); mode act asks for that",
            name,
        )


def secret(environ: Mapping[str, str], variable: str) -> str | None:
    """A secret of the environment, or of the file that `VARIABLE_FILE` names.

    Raises:
        Failure: the file cannot be read, or is empty.
    """
    path = environ.get(f"{variable}_FILE")
    return secret_file(path, f"{variable}_FILE") if path else environ.get(variable) or None

"""Tokens that were given out while the server runs: by `foreshock token new`, and by enrolment to each node its own.

    token, secret = issue(connection, TokenOrder("rack7", ("join",), "gpu-[001-064]"), now, actor="alice")
    own, secret = enrol(connection, token.sha256, "gpu-017", now)     # with the join token; the secret is told once
    revoke(connection, "gpu-017", now, actor="alice")

A secret is 256 random bits. The database has its SHA-256 alone: nobody can compute the one from the other, and how long
it takes to look a digest up tells nothing of a secret that has another one. Rows are ended, never deleted, and each
change has a number, so that a server reads only what is new.
"""

import hashlib
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from store.database.audit_chain import AuditEntry, append_audit
from store.records.event import RecordError
from store.records.hostlist import NodePattern, check_node_name
from store.tables import schema

# What a person and a scanner of leaked secrets know a token by.
PREFIX = "fsk_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_BYTES = 32
_SECRET_LETTERS = 43  # as many as 256 bits need
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}", re.ASCII)
_TABLE = schema.tokens
# Of advisory locks: changes come one after another, so that their numbers are seen in order.
_LOCK = 7_301_012

Trouble: TypeAlias = Literal["revoked", "expired", "used up"]


class TokenRefusedError(ValueError):
    """A token that cannot be made, ended or used; the message says why and what to do. `conflict`: another is there."""

    def __init__(self, text: str, *, conflict: bool = False) -> None:
        super().__init__(text)
        self.conflict = conflict


@dataclass(frozen=True, slots=True)
class TokenOrder:
    """What a new token is to be. `uses`: how many nodes a join token may enrol; None: each of its pattern once."""

    name: str
    scopes: tuple[str, ...]
    node: str = "*"
    expires: datetime | None = None
    uses: int | None = None


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token as it is stored. `changed` is the number of its last change."""

    sha256: str
    name: str
    scopes: tuple[str, ...]
    node: str
    created: datetime
    created_by: str
    expires: datetime | None
    uses: int | None
    used: int
    last_used: datetime | None
    revoked: datetime | None
    revoked_by: str | None
    changed: int

    def trouble(self, now: datetime) -> Trouble | None:
        """Why it is not in force; None while it is."""
        if self.revoked is not None:
            return "revoked"
        if self.expires is not None and self.expires <= now:
            return "expired"
        return "used up" if self.uses is not None and self.used >= self.uses else None


def new_secret() -> str:
    """The text of a new token: the prefix, and 32 random bytes in base 62."""
    number = int.from_bytes(secrets.token_bytes(_SECRET_BYTES))
    letters = ""
    while number:
        number, place = divmod(number, len(_ALPHABET))
        letters = _ALPHABET[place] + letters
    return PREFIX + letters.rjust(_SECRET_LETTERS, _ALPHABET[0])


def digest_of(secret: str) -> str:
    """The SHA-256 of a token as 64 hex digits: what the store and the configuration hold."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue(connection: sa.Connection, order: TokenOrder, now: datetime, actor: str) -> tuple[IssuedToken, str]:
    """Store a new token; returns it with its secret, which nobody can find out later.

    Raises:
        TokenRefusedError: the name is none or taken, the node pattern is none, or it would never be in force.
    """
    _check(order, now)
    _lock(connection)
    made = _insert(connection, order, now, actor)
    _note(connection, now, actor, "token_new", made[0])
    return made


def _check(order: TokenOrder, now: datetime) -> None:
    if not _NAME.fullmatch(order.name):
        raise TokenRefusedError(
            f"{order.name[:80]!r} is no name of a token: use letters, digits and . _ @ -, beginning with a letter"
        )
    if not order.scopes:
        raise TokenRefusedError("a token needs a scope")
    try:
        nodes = NodePattern.of(order.node)
    except RecordError as error:
        raise TokenRefusedError(str(error)) from error
    if "join" in order.scopes and (len(order.scopes) > 1 or nodes.is_every):
        raise TokenRefusedError(
            'a join token does nothing else, and says for which nodes it is: --scope join --node "gpu-[001-064]"'
        )
    if order.uses is not None and "join" not in order.scopes:
        raise TokenRefusedError("uses are counted of join tokens alone: leave them out, or give --scope join")
    if order.expires is not None and order.expires <= now:
        raise TokenRefusedError("it would have expired already: give a later time")


def _insert(connection: sa.Connection, order: TokenOrder, now: datetime, actor: str) -> tuple[IssuedToken, str]:
    before = _live(connection, order.name)
    if before is not None and before.trouble(now) is None:
        raise TokenRefusedError(
            f"there is a token {order.name!r} already: `foreshock token revoke {order.name}` ends it", conflict=True
        )
    if before is not None:  # expired or used up: the name is free again
        _end(connection, before, before.expires or now, before.created_by)
    secret = new_secret()
    row: dict[str, Any] = {
        "sha256": digest_of(secret),
        "name": order.name,
        "scopes": sorted(order.scopes),
        "node": order.node,
        "created": now,
        "created_by": actor,
        "expires": order.expires,
        "uses": order.uses,
        "used": 0,
        "changed": _next(connection),
    }
    connection.execute(_TABLE.insert().values(**row))
    blank = {"last_used": None, "revoked": None, "revoked_by": None}
    return IssuedToken(**{**row, **blank, "scopes": tuple(row["scopes"])}), secret


def enrol(connection: sa.Connection, join: str | None, node: str, now: datetime, actor: str) -> tuple[IssuedToken, str]:
    """Give a node a token of its own, of scope `ingest` and for itself alone.

    Args:
        join: SHA-256 of the stored join token that it came with; None: of one in the configuration.
        actor: that token's name.

    Raises:
        TokenRefusedError: the join token has ended, or the node has a token already.
    """
    try:
        check_node_name(node)
    except RecordError as error:
        raise TokenRefusedError(str(error)) from error
    _lock(connection)
    if join is not None:
        _use(connection, join, now, actor)
    own = _read(connection, sa.select(_TABLE).where(_TABLE.c.node == node, _TABLE.c.revoked.is_(None)))
    for token in own:
        if token.trouble(now) is None and "ingest" in token.scopes:
            raise TokenRefusedError(
                f"node {node!r} has a token already: `foreshock token revoke {token.name}` ends it, then it may have "
                "another",
                conflict=True,
            )
    made = _insert(connection, TokenOrder(node, ("ingest",), node), now, actor)
    _note(connection, now, actor, "token_enrolled", made[0])
    return made


def _use(connection: sa.Connection, join: str, now: datetime, actor: str) -> None:
    """Count one use of a join token."""
    token = _of(connection, join)
    trouble = token.trouble(now)
    if trouble is not None:
        raise TokenRefusedError(f"join token {actor!r} is {trouble}: make another one with `foreshock token new`")
    values = {"used": token.used + 1, "changed": _next(connection)}
    connection.execute(sa.update(_TABLE).where(_TABLE.c.sha256 == join).values(**values))


def revoke(connection: sa.Connection, name: str, now: datetime, actor: str) -> IssuedToken:
    """End a token.

    Raises:
        TokenRefusedError: there is none of this name.
    """
    _lock(connection)
    found = _live(connection, name)
    if found is None:
        raise TokenRefusedError(
            f"no token {name[:80]!r} is in force: `foreshock token list` shows those there are; a token of the "
            "configuration ends when it is taken out there"
        )
    ended = _end(connection, found, now, actor)
    _note(connection, now, actor, "token_revoked", ended)
    return ended


def _end(connection: sa.Connection, token: IssuedToken, now: datetime, actor: str) -> IssuedToken:
    values = {"revoked": now, "revoked_by": actor, "changed": _next(connection)}
    connection.execute(sa.update(_TABLE).where(_TABLE.c.sha256 == token.sha256).values(**values))
    return _of(connection, token.sha256)


def list_tokens(connection: sa.Connection) -> list[IssuedToken]:
    """Every token that was given out, in the order they were made."""
    return _read(connection, sa.select(_TABLE).order_by(_TABLE.c.created, _TABLE.c.name))


def changed_tokens(connection: sa.Connection, after: int) -> list[IssuedToken]:
    """The tokens with a change beyond a number, in the order of the changes."""
    return _read(connection, sa.select(_TABLE).where(_TABLE.c.changed > after).order_by(_TABLE.c.changed))


def note_used(connection: sa.Connection, moments: Mapping[str, datetime]) -> None:
    """Note when tokens were last used, by their digests; an earlier moment changes nothing."""
    if moments:
        when = sa.bindparam("moment", type_=_TABLE.c.last_used.type)
        newer = sa.or_(_TABLE.c.last_used.is_(None), _TABLE.c.last_used < when)
        statement = sa.update(_TABLE).where(_TABLE.c.sha256 == sa.bindparam("digest"), newer).values(last_used=when)
        # In one order, so that two servers cannot wait for each other.
        connection.execute(statement, [{"digest": name, "moment": moments[name]} for name in sorted(moments)])


def _read(connection: sa.Connection, query: sa.Select[Any]) -> list[IssuedToken]:
    rows: Sequence[Any] = connection.execute(query).mappings().all()
    return [IssuedToken(**{**row, "scopes": tuple(row["scopes"])}) for row in rows]


def _of(connection: sa.Connection, digest: str) -> IssuedToken:
    return _read(connection, sa.select(_TABLE).where(_TABLE.c.sha256 == digest))[0]


def _live(connection: sa.Connection, name: str) -> IssuedToken | None:
    """The token of a name that nobody has ended; it may have expired."""
    found = _read(connection, sa.select(_TABLE).where(_TABLE.c.name == name, _TABLE.c.revoked.is_(None)))
    return found[0] if found else None


def _lock(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _next(connection: sa.Connection) -> int:
    return (connection.scalar(sa.select(sa.func.max(_TABLE.c.changed))) or 0) + 1


def _note(connection: sa.Connection, now: datetime, actor: str, action: str, token: IssuedToken) -> None:
    detail = {"scopes": list(token.scopes), "node": token.node, "sha256": token.sha256[:12]}
    append_audit(connection, [AuditEntry(now, actor, action, f"token:{token.name}", detail)])

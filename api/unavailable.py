"""What a database's error means for a client: which of them pass by themselves, and are a 503.

why_unavailable(error) -> Unavailable("disk_full", "the database's disk is full: ...")
"""

from dataclasses import dataclass

from psycopg import OperationalError as PostgresOperationalError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from store.database import is_away


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why the database takes no request now: a word for the metrics, and a sentence for the client."""

    reason: str
    detail: str


_AWAY = Unavailable("database_away", "the database is busy or gone: try again")
_BUSY = Unavailable("database_busy", "the database is busy: try again")
_SLOW = Unavailable("database_slow", "the database took too long: try again")
_FULL = Unavailable("disk_full", "the database's disk is full: nothing is taken until its operator makes room")
_CONNECTIONS = Unavailable("connections", "the database has no connection left: try again")
_READ_ONLY = Unavailable("read_only", "the database is read-only (a standby?): nothing is taken until it is not")
_SCHEMA = Unavailable("schema", "the database lacks a table: run `foreshock db migrate`")

# PostgreSQL's SQLSTATE (appendix A of its manual): the whole code, else its class of two characters.
_BY_STATE = {
    "25006": _READ_ONLY,
    "40": _BUSY,  # a deadlock or a serialization failure: the other one went on
    "42P01": _SCHEMA,
    "53": Unavailable("resources", "the database is out of memory or another resource: try again"),
    "53100": _FULL,
    "53300": _CONNECTIONS,
    "55P03": _BUSY,
    "57": _AWAY,  # it shuts down, starts, or ended the session
    "57014": _SLOW,
    "58": Unavailable("disk", "the database cannot use its disk: its log says why"),
    "08": _AWAY,
}


def why_unavailable(error: BaseException) -> Unavailable | None:
    """Why the database could not serve for now; None where the error is of another kind: a fault of ours."""
    if isinstance(error, PoolTimeoutError):
        return _CONNECTIONS
    inner = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    state = getattr(inner, "sqlstate", None)
    if state:
        return _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    text = str(inner)
    if "database or disk is full" in text:  # SQLite's errors bear no code
        return _FULL
    if "readonly database" in text:
        return _READ_ONLY
    if "remaining connection slots" in text or "too many clients" in text:  # refused before there was a session
        return _CONNECTIONS
    return _AWAY if is_away(error) or isinstance(error, PostgresOperationalError) else None

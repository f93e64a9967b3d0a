"""What another test system, or a person, reports of a held node: it counts as a test of ours does."""

from datetime import datetime

import sqlalchemy as sa

from schedulers.facts import HOLDING
from schedulers.verdict import VerdictError
from store.hint import OPEN_STATES, Hint
from store.hint_log import note, read_hint, read_hints
from store.validations import Validation, report_validation


def report_test(connection: sa.Connection, ident: str, result: tuple[bool, str], now: datetime, who: str) -> Validation:
    """Write down a result: (whether the node passed, what was said).

    Raises:
        VerdictError: there is no such hint, it has ended, or it holds no node.
    """
    hint = read_hint(connection, ident)
    if hint is None:
        raise VerdictError(f"no hint has the id {ident!r}: `foreshock hints list` shows those there are", known=False)
    if hint.state not in OPEN_STATES:
        raise VerdictError(f"hint {ident} has ended already: it is {hint.state}", known=True)
    if not _is_hold(hint):
        raise VerdictError(f"hint {ident} ({hint.action}) holds no node: there is nothing to be released", known=True)
    row = report_validation(connection, hint, who, now, result)
    note(connection, now, who, hint, {"test": "passed" if row.passed else "failed", "output": row.output[-200:]})
    return row


def report_node(connection: sa.Connection, node: str, result: tuple[bool, str], now: datetime, who: str) -> Validation:
    """The same by the node's name.

    Raises:
        VerdictError: no open hint of ours holds it.
    """
    for hint in read_hints(connection, states=OPEN_STATES, node=node):
        if _is_hold(hint):
            return report_test(connection, hint.id, result, now, who)
    raise VerdictError(f"no open hint of ours holds node {node}: `foreshock hints list` shows those there are", False)


def _is_hold(hint: Hint) -> bool:
    return hint.action in HOLDING and hint.job is None

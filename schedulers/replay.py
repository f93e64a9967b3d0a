"""A person's word to make a delivery once more: same webhook-id, new timestamp."""

from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from schedulers.attempt import over
from schedulers.settings import Mode
from schedulers.verdict import VerdictError
from store.hint_log import note, read_hint
from store.outbox import Delivery, owe_again, read_delivery


def replay(connection: sa.Connection, ident: str, now: datetime, who: str, mode: Mode) -> Delivery:
    """Owe a delivery again; the dispatcher makes it in its next turn, and again by the schedule should that fail.

    Raises:
        VerdictError: there is no such delivery, its hint has ended or was raised since (a release may always be
            made again), or the mode is shadow.
    """
    delivery = read_delivery(connection, ident)
    hint = None if delivery is None else read_hint(connection, delivery.hint)
    if delivery is None or hint is None:
        raise VerdictError(f"no delivery has the id {ident!r}: `foreshock hints deliveries` shows them", False)
    why = over(delivery, hint, now)
    if why is not None:
        said = "has ended" if why == "expired" else "was raised or renewed since: replay the newer delivery"
        raise VerdictError(f"hint {hint.id} {said}", known=True)
    if mode == "shadow" and delivery.payload["data"]["mode"] != "shadow":
        raise VerdictError("the server is in shadow mode: nothing is sent", known=True)
    owe_again(connection, delivery, now)
    note(connection, now, who, hint, {"delivery": ident, "outcome": "replayed", "was": delivery.state})
    return replace(delivery, state="owed", due=now, attempts=min(delivery.attempts, 1), last_error=None)

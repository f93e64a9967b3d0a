"""Waiting until every fault event that came in is in an incident, whoever folds it: the test or the server's loop."""

import sqlalchemy as sa
from real.programs import wait_for

from diagnosis.incidents.intake import fold_intake
from store.events.incident_intake import anything_waits


def fold_all(engine: sa.Engine) -> None:
    """Fold what the intake holds, and wait for what another folds at this moment."""

    def done() -> bool:
        while fold_intake(engine):
            pass
        with engine.connect() as connection:
            return not anything_waits(connection)

    wait_for("every event is in an incident", done)

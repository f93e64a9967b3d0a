"""Which rows the partial indexes hold: a query must say the same in the same words for its database to use one."""

from datetime import timedelta

import sqlalchemy as sa

# Events of a training run: most events name none.
NAMED = sa.text("run IS NOT NULL")
# Incidents that lasted long, which are few.
LONG_INCIDENT = timedelta(hours=1)
LONG = {
    "postgresql": sa.text("\"end\" - start > interval '1 hour'"),
    "sqlite": sa.text('"end" - start > 3600000000'),
}

"""`GET /runs/{run}/hints`: the hints for a run's jobs, for its trainer or controller to poll."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from api.answers.paging import Name
from api.answers.reply import listing
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from store.hints.hint_log import read_job_hints
from store.records.hint import LIVE_STATES
from wire.hints import HintJson
from wire.message import Page

router = APIRouter(prefix=PREFIX, tags=["runs"])


class RunHintQuery(BaseModel):
    """Of one job of the run alone."""

    job: Name | None = None


@router.get(
    "/runs/{run:path}/hints",  # a run's name may have a slash
    operation_id="get_run_hints",
    summary="List the hints for a run",
    responses=answer(Page[HintJson]),
)
def get_run_hints(
    _who: Reader, server: Server, run: Annotated[str, Path(max_length=255)], query: Annotated[RunHintQuery, Query()]
) -> Response:
    """The hints in force for a run's jobs, oldest first; an unknown run has none."""
    now = server.clock()
    with server.engine.connect() as connection:
        hints = read_job_hints(connection, now)
    mine = [hint for hint in hints if hint.evidence.run == run and query.job in (None, hint.job)]
    return listing([hint.to_row() for hint in mine if hint.state in LIVE_STATES and hint.valid_until > now], None)

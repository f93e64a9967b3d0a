"""`GET /policy`, `GET /policies`: the policy in force, and earlier ones."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import NO_TIME
from api.answers.paging import MAX_LIMIT, CursorText, PageCursor, decode_seq
from api.answers.reply import listing, reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from schedulers.policy.settings import canonical, version_of
from store.hints.policy_history import policies_page
from wire.message import Page
from wire.policy import PolicyInForceJson, PolicyJson

router = APIRouter(prefix=PREFIX, tags=["hints"])


class PoliciesQuery(BaseModel):
    """Which versions."""

    limit: int = Field(default=100, ge=1, le=MAX_LIMIT)
    cursor: CursorText = None


@router.get("/policy", operation_id="get_policy", summary="The policy in force", responses=answer(PolicyInForceJson))
def get_policy(_who: Reader, server: Server) -> Response:
    """With its version, which each hint and audit row bears, and whether its file holds."""
    policy, source = server.settings.policy, server.started.policy_source
    return reply(
        {
            "version": version_of(policy),
            "mode": policy.mode,
            "place": "the defaults" if source is None else source.place,
            "errors": 0 if source is None else source.errors,
            "problem": None if source is None else source.problem,
            "policy": orjson.loads(canonical(policy)),
        }
    )


@router.get("/policies", operation_id="get_policies", summary="List the policies", responses=answer(Page[PolicyJson]))
def get_policies(_who: Reader, server: Server, query: Annotated[PoliciesQuery, Query()]) -> Response:
    """Every policy that came into force, the newest first: that one holds."""
    with server.engine.connect() as connection:
        rows = policies_page(connection, query.limit + 1, decode_seq(query.cursor))
    kept = [
        {"seq": row["seq"], "time": row["time"], "version": row["version"], "policy": orjson.loads(row["text"])}
        for row in rows[: query.limit]
    ]
    return listing(kept, PageCursor(NO_TIME, str(kept[-1]["seq"])).encode() if len(rows) > query.limit else None)

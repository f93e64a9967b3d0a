"""`POST /enroll`: a token of its own for a node, once, against a join token."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from api.answers.reply import reply
from api.edge.admission import write_slot
from api.edge.auth import Joiner
from api.edge.body import described, json_of
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server, State
from store.database.connections import transact
from store.nodes.tokens import TokenRefusedError, enrol
from store.records.event import RecordError
from wire.sidecars import EnrolledJson, EnrollmentJson

router = APIRouter(prefix=PREFIX, tags=["sidecars"])
Slot = Annotated[None, Depends(write_slot, scope="function")]
Wanted = Annotated[EnrollmentJson, Depends(json_of(EnrollmentJson))]


@router.post(
    "/enroll",
    operation_id="enroll",
    summary="Give a node a token of its own",
    responses=answer(EnrolledJson)
    | {409: {"description": "The node has a token already, or the join token is used up."}},
    openapi_extra=described(EnrollmentJson, {"node": "gpu-017"}),
)
def enroll(caller: Joiner, server: Server, wanted: Wanted, _slot: Slot) -> Response:
    """The token has the scope `ingest`, for this node alone. Its text is in this answer, and nowhere else."""
    try:
        node = caller.names.canonical(wanted.node)  # by which its records will be known
    except RecordError:
        node = wanted.node  # no name of a node: no token is for it
    if not caller.speaks_for(node):
        server.metrics.denied.labels("enroll", "node").inc()
        detail = f"join token {caller.name!r} is not for node {node[:80]!r}, but for {caller.nodes.text!r}"
        raise Problem(403, detail)
    _check_configured(server, node)
    stored = caller.digest if caller.digest is not None and server.tokens.is_issued(caller.digest) else None
    try:
        # SQLAlchemy's connection is the only argument that is not known here.
        work = partial(enrol, join=stored, node=node, now=server.wall(), actor=caller.name)
        token, secret = transact(server.engine, work)
    except TokenRefusedError as error:
        raise Problem(409, str(error)) from error
    server.tokens.take(token)
    return reply({"name": token.name, "node": token.node, "scopes": token.scopes, "token": secret})


def _check_configured(server: State, node: str) -> None:
    """Refuse a node that the configuration gives a token, and a name that one of its tokens has in the audit.

    Raises:
        Problem: 409.
    """
    for token in server.settings.tokens:
        if token.name == node or ("ingest" in token.scopes and token.nodes.only == node):
            detail = f"node {node!r} has a token already, {token.name!r} of the configuration: it may have no other"
            raise Problem(409, detail)

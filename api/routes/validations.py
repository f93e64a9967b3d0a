"""`GET` and `POST /hints/{id}/validation`: the tests of a held node, and what another test system says of it."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from api.answers.reply import listing, reply
from api.edge.auth import Reader, Reporter
from api.edge.body import described, json_of
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.routes.hints import HintId, check_own_hint
from api.server.state import Server
from schedulers.lifecycle.approval import RequestRefusedError
from schedulers.lifecycle.operator_actions import report_test
from store.database.connections import writing
from store.hints.hint_log import read_hint
from store.hints.validations import validations_of
from wire.hints import ValidationJson, ValidationReportJson
from wire.message import Page

router = APIRouter(prefix=PREFIX, tags=["hints"])


Reported = Annotated[ValidationReportJson, Depends(json_of(ValidationReportJson))]


@router.get(
    "/hints/{hint}/validation",
    operation_id="get_validations",
    summary="List the tests of a held node",
    responses=answer(Page[ValidationJson]) | {404: {"description": "No such hint."}},
)
def get_validations(_who: Reader, server: Server, hint: HintId) -> Response:
    """The tests that were begun for a hint, and what was reported, oldest first."""
    with server.engine.connect() as connection:
        if read_hint(connection, hint) is None:
            raise Problem(404, f"no hint has the id {hint!r}")
        found = validations_of(connection, [hint]).get(hint, [])
    return listing([asdict(one) for one in found], None)


@router.post(
    "/hints/{hint}/validation",
    operation_id="report_validation",
    summary="Report a test of a held node",
    responses=answer(ValidationJson)
    | {404: {"description": "No such hint."}, 409: {"description": "It has ended, or holds no node."}},
    openapi_extra=described(ValidationReportJson, {"passed": False, "detail": "nccl-tests: 12 GB/s"}),
)
def post_validation(who: Reporter, server: Server, hint: HintId, said: Reported) -> Response:
    """It counts as a test of the server's own does: passed, the node is released once its healthy time is over."""
    try:
        with writing(server.engine).begin() as connection:
            check_own_hint(connection, who, hint)
            row = report_test(connection, hint, (said.passed, said.detail), server.clock(), who.name)
    except RequestRefusedError as error:
        raise Problem(409 if error.known else 404, str(error)) from error
    return reply(asdict(row))

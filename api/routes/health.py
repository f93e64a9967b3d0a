"""`/livez`, `/readyz`, `/healthz`: for load balancers and init systems; no token needed."""

from fastapi import APIRouter, Response
from sqlalchemy.exc import SQLAlchemyError

from api.reply import reply
from api.state import Server, State
from api.wire import CheckOut
from store.database import newest_revision, revision
from store.read_models import newest_model

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez", summary="Is the process alive", response_model=CheckOut)
def livez() -> Response:
    """Ok while the process answers at all."""
    return reply({"status": "ok", "checks": {}})


@router.get("/readyz", operation_id="readyz", summary="Can the server do its work", response_model=CheckOut)
def readyz(server: Server) -> Response:
    """Names each check; 503 when one that the server cannot do without fails. A missing model is no failure."""
    checks = run_checks(server)
    failed = any(text.startswith("failed") for text in checks.values())
    return reply({"status": "failed" if failed else "ok", "checks": checks}, 503 if failed else 200)


@router.get("/healthz", operation_id="healthz", summary="As /readyz", response_model=CheckOut)
def healthz(server: Server) -> Response:
    """The same as /readyz, under the name that some tools look for."""
    return readyz(server)


def run_checks(server: State) -> dict[str, str]:
    """Each check's outcome: `ok`, or a word on what is wrong; what begins with `failed` is fatal."""
    checks = {"database": "ok", "migrations": "ok", "model": "ok"}
    try:
        at, newest = revision(server.engine), newest_revision()
        if at != newest:
            checks["migrations"] = f"failed: the schema is at {at}, this program needs {newest}"
            checks["model"] = "unknown"
            return checks
        with server.engine.connect() as connection:
            if newest_model(connection) is None:
                checks["model"] = "none yet: run `foreshock train`"
    except SQLAlchemyError as error:
        checks.update(database=f"failed: {type(error).__name__}", migrations="unknown", model="unknown")
    return checks

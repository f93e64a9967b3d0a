"""A small JSON body of one form: read under the limits of all bodies, and only once the caller is known to be allowed.

asked: Annotated[AckIn, Depends(json_of(AckIn))]
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.body import Packed, unpack
from api.problem import Problem
from api.state import Server

M = TypeVar("M", bound=BaseModel)


def json_of(model: type[M]) -> Callable[[Request, Server, bytes], M]:
    """A dependency that gives the body as a record of the form; 422 with the first thing that does not fit."""

    def read(request: Request, server: Server, packed: Packed) -> M:
        try:
            return model.model_validate_json(unpack(request, server, packed) or b"{}")
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the body"
            raise Problem(422, f"{place}: {first['msg']}") from error

    return read


def described(model: type[BaseModel], example: Mapping[str, Any]) -> dict[str, Any]:
    """The body in the published description, for `openapi_extra`."""
    content = {"application/json": {"schema": model.model_json_schema(), "example": dict(example)}}
    return {"requestBody": {"required": True, "content": content}}

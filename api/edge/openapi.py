"""The published description: FastAPI's own, with errors as they are really sent (application/problem+json)."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from api.edge.problem import MEDIA_TYPE
from wire.message import published

PREFIX = "/api/v1"
_SCHEMA = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457 problem details.",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"detail": {"type": "string"}, "pointer": {"type": "string"}},
            },
        },
    },
}
_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_EVERYWHERE = {
    "401": "No known token.",
    "403": "The token lacks the scope.",
    "422": "A parameter does not fit.",
    "429": "Too much of one sender: Retry-After says when to go on (at /alerts it is a 503).",
    "500": "An unexpected failure.",
    "503": "The server or its database is busy or gone: Retry-After says when to try again.",
}
_BODIES = {
    "400": "The body cannot be read at all.",
    "408": "The body did not come.",
    "413": "The body is too large.",
    "415": "The encoding is not known.",
}
_ADDRESSED = {"404": "There is no such thing."}
_METHODS = frozenset({"get", "post", "put", "patch", "delete"})


class AnswerSchema(dict[str, Any]):
    """The place of a schema in the description of a route; `publish` fills in that of `kind`."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind


def answer(kind: Any, *, or_text: bool = False) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers one kind of JSON object; `or_text`: or plain text, if requested so."""
    text = {"text/plain": {"schema": {"type": "string"}}} if or_text else {}
    return {200: {"content": {"application/json": {"schema": AnswerSchema(kind)}, **text}}}


def publish(app: FastAPI) -> None:
    """Make the application describe itself this way."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                tags=app.openapi_tags,
            )
            _fill_answers(app, document)
            app.openapi_schema = _with_problems(document)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's documented way


def _fill_answers(app: FastAPI, document: dict[str, Any]) -> None:
    places: list[dict[str, Any]] = []
    kinds: list[Any] = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if not isinstance(route, APIRoute):
            continue
        declared = route.responses.get(200, {}).get("content", {}).get("application/json", {}).get("schema")
        if isinstance(declared, AnswerSchema):
            (operation,) = (document["paths"][context.path_format][each.lower()] for each in route.methods or ())
            responses = operation["responses"]
            places.append(responses["200"]["content"]["application/json"])
            kinds.append(declared.kind)
    schemas, components = published(kinds)
    for place, schema in zip(places, schemas, strict=True):
        place["schema"] = schema
    document.setdefault("components", {}).setdefault("schemas", {}).update(components)


def _with_problems(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _SCHEMA
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in _METHODS:
                _declare(path, operation)
    return document


def _declare(path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    expected = dict(_EVERYWHERE) if "security" in operation else {"500": _EVERYWHERE["500"]}
    expected |= _BODIES if "requestBody" in operation else {}
    expected |= _ADDRESSED if "{" in path or "404" in responses else {}
    for status, description in expected.items():
        responses[status] = {"description": description, "content": _CONTENT}
    for status, response in responses.items():
        if status >= "400" and status not in expected:
            response["content"] = _CONTENT

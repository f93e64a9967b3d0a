"""How request bodies appear in the published description."""

from typing import Any

_NDJSON = "application/x-ndjson"


def records_body(example: dict[str, Any], text: str) -> dict[str, Any]:
    """A body of records: a JSON array, or one object a line; gzip and zstd are unpacked."""
    schema = {"type": "array", "items": {"type": "object"}}
    return {
        "requestBody": {
            "required": True,
            "description": text,
            "content": {
                "application/json": {"schema": schema, "example": [example]},
                _NDJSON: {"schema": {"type": "string"}},
            },
        }
    }

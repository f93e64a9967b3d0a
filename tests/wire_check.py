"""What an answer is held against: the published schema of its kind, and the type that the dashboard reads it with."""

from functools import cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from wire.message import published


@cache
def _validator(kind: Any) -> Draft202012Validator:
    (schema,), components = published([kind])
    return Draft202012Validator({**schema, "components": {"schemas": components}})


def check_answer(kind: Any, value: Any) -> None:
    """Every field is there, of its type, with one of the published words.

    Raises:
        jsonschema.ValidationError, msgspec.ValidationError: it is not what the API promises.
    """
    _validator(kind).validate(value)
    msgspec.convert(value, kind, strict=True)

"""JSON-Patch (RFC 6902) as far as patches of ours use it; the live tests have the real API server."""

import copy
from typing import Any


class DoesNotHoldError(Exception):
    """A `test` does not hold."""


def apply(document: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """The patched document; the given one stays.

    Raises:
        DoesNotHoldError, KeyError, IndexError: it cannot be applied.
    """
    changed = copy.deepcopy(document)
    for step in patch:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        at: Any = changed
        for part in path:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if step["op"] == "test":
            if (at[int(last)] if isinstance(at, list) else at[last]) != step["value"]:
                raise DoesNotHoldError(step["path"])
        elif step["op"] == "remove":
            del at[int(last) if isinstance(at, list) else last]
        elif isinstance(at, list):
            at.insert(len(at) if last == "-" else int(last), step["value"])
        else:
            at[last] = step["value"]
    return changed

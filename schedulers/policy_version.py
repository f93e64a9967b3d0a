"""The version of a policy: a digest of all that it says, so that two servers with the same policy name it alike."""

import hashlib
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import orjson

from schedulers.settings import Policy


@lru_cache(maxsize=64)
def version_of(policy: Policy) -> str:
    """Twelve hex digits that change with every value, whether it was written out or left to its default."""
    return hashlib.blake2b(canonical(policy).encode(), digest_size=6).hexdigest()


def canonical(policy: Policy) -> str:
    """All of a policy as JSON with sorted keys: what `version_of` digests and the table `policies` keeps."""
    return orjson.dumps(asdict(policy), option=orjson.OPT_SORT_KEYS, default=_text).decode()


def _text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a policy")

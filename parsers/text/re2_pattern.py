r"""A pattern in RE2's syntax, compiled: the one place that knows the library.

compiled(r"deadlock on (?P<name>\w+)").search("mmfs: deadlock on fs7")["name"] -> "fs7"
"""

import re2

# A pattern that needs more memory is refused.
MAX_MEMORY_BYTES = 8 * 1024 * 1024


class PatternError(ValueError):
    """Not in RE2's syntax, or too large; the message is RE2's."""


def options() -> re2.Options:
    """Limits for every pattern."""
    options = re2.Options()
    options.log_errors = False  # said by the exception
    options.max_mem = MAX_MEMORY_BYTES
    return options


def compiled(pattern: str) -> "re2._Regexp[str]":
    """The pattern, ready to search.

    Raises:
        PatternError: says what is wrong with it.
    """
    try:
        return re2.compile(pattern, options())
    except re2.error as error:
        raw = error.args[0] if error.args else error
        raise PatternError(raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)) from error

"""One thing and many: the noun that follows a count, for every text that a person reads.

many(1, "verdict")             # 1 verdict
many(3, "entry", "entries")    # 3 entries
"""


def plural(value: float, one: str, more: str | None = None) -> str:
    """The noun for so many; `more` where an s behind `one` is not it."""
    return one if value == 1 else more or f"{one}s"


def many(value: int, one: str, more: str | None = None) -> str:
    """A count with its noun."""
    return f"{value} {plural(value, one, more)}"

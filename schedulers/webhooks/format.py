"""What every format is: a way to write a hint's delivery, and to tell a failure that hides behind HTTP 200."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from schedulers.webhooks.post import Message
from store.outbox import Delivery

# In a chat `watch` would be a flood, and `avoid` nearly one.
LOUD_ACTIONS = ("cordon", "drain", "requeue", "swap")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a receiver's answer complains of. `slow`: it wants fewer messages, rather than another one."""

    detail: str
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    `write` makes the message of a delivery with the secrets in force, newest last, as of the real time.
    `failure` reads the body of a 2xx answer; None: it is none. `check_secret` raises SecretError.
    """

    write: Callable[[Delivery, Sequence[str], datetime], Message]
    failure: Callable[[bytes], Failure | None]
    check_secret: Callable[[str], object]
    needs_secret: bool = True
    # People are told, no scheduler acts: that it was delivered does not make a hint `sent`.
    is_notice: bool = False
    actions: tuple[str, ...] = ()  # that are sent unless the configuration names others; none: all


def no_failure(_body: bytes) -> Failure | None:
    """Of receivers whose status says it all."""
    return None


def any_secret(_secret: str) -> None:
    """Of formats whose secrets have no form of their own."""

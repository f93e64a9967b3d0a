"""Lines of a subnet manager's log, for tests."""

from parsers.formats.opensm import OpensmParser
from parsers.text.parser import Context, parse
from store.records.event import Event


def line(text: str, second: int = 11, micros: int = 0, thread: str = "8EAC6C0", minute: int = 18) -> str:
    """A line of the log at 22:18 and some seconds."""
    return f"Nov 20 22:{minute:02d}:{second:02d} {micros:06d} [{thread}] 0x02 -> {text}"


def decode(*lines: str, context: Context | None = None) -> list[Event]:
    """The events of some lines."""
    return list(parse(OpensmParser(context or Context(year=2026)), lines))

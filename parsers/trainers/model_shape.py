"""The model's shape, out of the arguments that a program prints when it starts, one a line."""

from collections.abc import Mapping

from store.event import Attribute

# What makes a model's arithmetic: sequences a step, layers, tokens a sequence, hidden size.
SHAPE = ("batch", "layers", "seq", "hidden")


class PrintedShape:
    """The figures of the arguments that are being printed."""

    def __init__(self) -> None:
        self._told: dict[str, Attribute] = {}

    def add(self, numbers: Mapping[str, Attribute]) -> None:
        """An argument's line."""
        self._told.update(numbers)

    def take(self) -> dict[str, Attribute] | None:
        """At the end of the arguments: all four figures, else None; the next ones are another start's."""
        told, self._told = self._told, {}
        return {name: told[name] for name in SHAPE} if all(name in told for name in SHAPE) else None

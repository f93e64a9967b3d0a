"""What a package's modules define, to hold against the registry that should list it."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

Unit = TypeVar("Unit")


def modules(package: ModuleType) -> list[ModuleType]:
    """The modules of a package, by name."""
    return [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]


def defined(package: ModuleType, unit: type[Unit]) -> list[Unit]:
    """Every object of a class that a module of the package has under a name, once."""
    return list({id(found): found for module in modules(package) for found in _of(module, unit)}.values())


def _of(module: ModuleType, unit: type[Unit]) -> Iterator[Unit]:
    for value in vars(module).values():
        if isinstance(value, unit):
            yield value
        elif isinstance(value, tuple):
            yield from (one for one in value if isinstance(one, unit))

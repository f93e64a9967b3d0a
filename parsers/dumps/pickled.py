"""Plain values out of a pickle that is never executed: dicts, lists, tuples, texts and numbers, and nothing else.

    plain_value(pickle.dumps({"version": "2.10", "entries": []}))      # {"version": "2.10", "entries": []}
    plain_value(pickle.dumps(os.system))                               # raises PickleRefusedError
    plain_value(pickle.dumps(Path("a")), named=True)                   # PickledObject("PosixPath"): looked up nowhere

A pickle is a program for a small machine with a stack. This is another machine, that knows only the instructions which
push plain values; whatever looks up a name, calls or builds an object is unknown to it and ends it. Where objects are
expected (`named`), what would look up, call or build one leaves a note of its name and state instead. Input,
instructions, values and nesting are bounded. A value may hold itself: whoever reads the result goes no deeper than it
must.

Source: the opcodes of Python's pickletools; torch/csrc/jit/serialization/pickler.cpp writes protocol 2.
"""

import struct
from typing import Any

# How a pickle of protocol 2 to 5 begins.
PICKLE = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
MOST_BYTES = 64 * 1024 * 1024
MOST_OPERATIONS = 8_000_000
# Containers that are open at once, and values that are kept for later use.
MOST_DEPTH = 64
MOST_KEPT = 1_000_000
# A whole number of more bytes is none of a dump's.
_MOST_NUMBER_BYTES = 9

_MARK = object()


class PickleRefusedError(ValueError):
    """A pickle that is broken, too large, or would do more than hold plain values."""


class PickledObject:
    """What stands where a pickle would make an object: the name of its class, and its fields as far as it has some."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[Any, Any] = {}


class _Machine:
    """The stack, and what was kept."""

    def __init__(self, data: bytes, steps: dict[int, Any]) -> None:
        self.data = data
        self.steps = steps
        self.at = 0
        self.stack: list[Any] = []
        self.kept: dict[int, Any] = {}
        self.marks = 0

    def run(self) -> Any:
        """The value that the pickle leaves."""
        data, stack, steps = self.data, self.stack, self.steps
        size = len(data)
        for _ in range(MOST_OPERATIONS):
            if self.at >= size:
                raise PickleRefusedError("it is cut short")
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                if len(stack) != 1 or stack[0] is _MARK:
                    raise PickleRefusedError("its end does not leave one value")
                return stack[0]
            step = steps.get(code)
            if step is None:
                raise PickleRefusedError(f"it holds the instruction {chr(code)!r}, which no plain value needs")
            step(self)
        raise PickleRefusedError(f"it has more than {MOST_OPERATIONS} instructions")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        found = self.data[self.at : self.at + size]
        if size < 0 or len(found) != size:
            raise PickleRefusedError("it is cut short")
        self.at += size
        return found

    def number(self, form: struct.Struct) -> int:
        """A number of fixed size."""
        found: int = form.unpack(self.take(form.size))[0]
        return found

    def pop(self) -> Any:
        """The top value."""
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleRefusedError("a value is missing")
        return self.stack.pop()

    def popped(self) -> list[Any]:
        """The values down to the last mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                self.marks -= 1
                return found
        raise PickleRefusedError("a mark is missing")

    def keep(self, key: int) -> None:
        """Keep the top value under a number."""
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleRefusedError("a value is missing")
        if len(self.kept) >= MOST_KEPT and key not in self.kept:
            raise PickleRefusedError(f"it keeps more than {MOST_KEPT} values")
        self.kept[key] = self.stack[-1]

    def again(self, key: int) -> None:
        """Push a value that was kept."""
        if key not in self.kept:
            raise PickleRefusedError("it uses a value that it did not keep")
        self.stack.append(self.kept[key])


_BYTE, _SHORT, _INT, _SIZE, _LONG_SIZE, _DOUBLE = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I", "<Q", ">d"))


def _text(form: struct.Struct) -> Any:
    def step(machine: _Machine) -> None:
        machine.stack.append(machine.take(machine.number(form)).decode("utf-8", "replace"))

    return step


def _push(value: Any) -> Any:
    return lambda machine: machine.stack.append(value)


def _whole(form: struct.Struct) -> Any:
    return lambda machine: machine.stack.append(machine.number(form))


def _keep(form: struct.Struct) -> Any:
    return lambda machine: machine.keep(machine.number(form))


def _again(form: struct.Struct) -> Any:
    return lambda machine: machine.again(machine.number(form))


def _tuple(count: int) -> Any:
    def step(machine: _Machine) -> None:
        found = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(found)))

    return step


def _mark(machine: _Machine) -> None:
    machine.marks += 1
    if machine.marks > MOST_DEPTH:
        raise PickleRefusedError(f"it is nested more than {MOST_DEPTH} deep")
    machine.stack.append(_MARK)


def _protocol(machine: _Machine) -> None:
    if not 2 <= machine.number(_BYTE) <= 5:
        raise PickleRefusedError("its protocol is not known")


def _long(machine: _Machine) -> None:
    size = machine.number(_BYTE)
    if size > _MOST_NUMBER_BYTES:
        raise PickleRefusedError("it holds a number of more than 64 bits")
    machine.stack.append(int.from_bytes(machine.take(size), "little", signed=True))


def _double(machine: _Machine) -> None:
    machine.stack.append(_DOUBLE.unpack(machine.take(8))[0])


def _list_of(machine: _Machine) -> list[Any]:
    if not machine.stack or not isinstance(machine.stack[-1], list):
        raise PickleRefusedError("it appends to what is no list")
    found: list[Any] = machine.stack[-1]
    return found


def _append(machine: _Machine) -> None:
    value = machine.pop()
    _list_of(machine).append(value)


def _appends(machine: _Machine) -> None:
    values = machine.popped()
    _list_of(machine).extend(values)


def _put(machine: _Machine, values: list[Any]) -> None:
    if not machine.stack or not isinstance(machine.stack[-1], dict) or len(values) % 2:
        raise PickleRefusedError("it puts items into what is no dict")
    found = machine.stack[-1]
    for key, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(key, str | int | PickledObject):
            raise PickleRefusedError("a key is neither a text nor a number")
        found[key] = value


def _item(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _put(machine, [key, value])


_STEPS: dict[int, Any] = {
    0x80: _protocol,
    0x95: lambda machine: machine.take(8),  # FRAME: how long the next stretch is
    0x28: _mark,
    ord("N"): _push(None),
    0x88: _push(True),
    0x89: _push(False),
    ord("J"): _whole(_INT),
    ord("K"): _whole(_BYTE),
    ord("M"): _whole(_SHORT),
    0x8A: _long,
    ord("G"): _double,
    ord("X"): _text(_SIZE),
    0x8C: _text(_BYTE),
    0x8D: _text(_LONG_SIZE),
    ord("]"): lambda machine: machine.stack.append([]),
    ord("a"): _append,
    ord("e"): _appends,
    ord(")"): _push(()),
    ord("t"): lambda machine: machine.stack.append(tuple(machine.popped())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("}"): lambda machine: machine.stack.append({}),
    ord("s"): _item,
    ord("u"): lambda machine: _put(machine, machine.popped()),
    ord("q"): _keep(_BYTE),
    ord("r"): _keep(_SIZE),
    0x94: lambda machine: machine.keep(len(machine.kept)),
    ord("h"): _again(_BYTE),
    ord("j"): _again(_SIZE),
}


def _named(count: int) -> Any:
    """A call or a new object: its arguments are dropped, its name is kept."""

    def step(machine: _Machine) -> None:
        for _ in range(count):
            machine.pop()
        made = machine.pop()
        machine.stack.append(PickledObject(made.name if isinstance(made, PickledObject) else ""))

    return step


def _name(machine: _Machine) -> None:
    name, _module = machine.pop(), machine.pop()
    machine.stack.append(PickledObject(str(name)[:_MOST_NAME]))


def _line_name(machine: _Machine) -> None:
    """Module and name, a line each, as protocols before 4 write them."""
    found = b""
    for _ in range(2):
        end = machine.data.find(b"\n", machine.at, machine.at + 2 * _MOST_NAME)
        found = machine.take(end - machine.at)
        machine.take(1)
    machine.stack.append(PickledObject(found.decode("utf-8", "replace")[:_MOST_NAME]))


def _fields(machine: _Machine) -> None:
    state, made = machine.pop(), machine.pop()
    if isinstance(made, PickledObject) and isinstance(state, dict):
        made.fields = state
    machine.stack.append(made)


_MOST_NAME = 256
_NAMED_STEPS: dict[int, Any] = {
    **_STEPS,
    ord("c"): _line_name,
    0x93: _name,
    ord("R"): _named(1),
    0x81: _named(1),
    0x92: _named(2),
    ord("b"): _fields,
}


def plain_value(data: bytes, named: bool = False) -> Any:
    """The value of a pickle.

    Args:
        named: objects are expected: each is a `PickledObject`, of which nothing was looked up, called or built.

    Raises:
        PickleRefusedError: it is broken, too large, or more than plain values.
    """
    if len(data) > MOST_BYTES:
        raise PickleRefusedError(f"it is larger than {MOST_BYTES} bytes")
    return _Machine(data, _NAMED_STEPS if named else _STEPS).run()

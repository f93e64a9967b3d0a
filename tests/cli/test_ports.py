"""Free ports."""

import socket

import pytest

from cli.console.errors import Failure
from cli.processes.children import free_port


def test_a_free_port_is_the_wanted_one() -> None:
    """A port that nobody holds is given as asked for."""
    port = free_port(0)
    assert free_port(port) == port


def test_a_taken_port_gives_another() -> None:
    """Somebody listens on the wanted one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (port, 0)


def test_an_address_of_another_machine_has_no_free_port() -> None:
    """192.0.2.0/24 is for documentation: nobody has it."""
    with pytest.raises(Failure, match=r"192\.0\.2\.1"):
        free_port(host="192.0.2.1")

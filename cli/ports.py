"""Free ports to listen on."""

import socket

from cli.errors import Failure


def free_port(wanted: int = 0, host: str = "127.0.0.1") -> int:
    """A port of an address that is free: the wanted one if it is, else any (0 asks for any).

    Raises:
        Failure: the address has none, or is not this machine's.
    """
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Failure(f"no free port on {host}: stop what holds them, or name an address of this machine")

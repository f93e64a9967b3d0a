"""Two real lldpd over a pair of virtual interfaces: a leaf's port and a node's; the cable that a server then knows."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from real.foreshock import serve
from real.programs import bound, need, stop, wait_for

pytestmark = pytest.mark.integration

LEAF, NODE = (f"foreshock-{os.getpid()}-{end}" for end in ("leaf", "node"))  # network namespaces


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def neighbour() -> Iterator[list[str]]:
    """What asks the node's lldpd, once it has heard of the leaf."""
    ip, lldpd, client = need("ip", "iproute2"), need("lldpd", "lldpd"), need("lldpcli", "lldpd")
    # A name of a socket is short, and programs without rights reach it and the configuration by their names.
    sockets = {space: f"/tmp/{space}.sock" for space in (LEAF, NODE)}  # noqa: S108
    with ExitStack() as stack:
        for space in (LEAF, NODE):
            if subprocess.run([ip, "netns", "add", space], capture_output=True).returncode != 0:
                pytest.skip("this machine lets nobody make a network namespace")
            stack.callback(_run, ip, "netns", "del", space)
        _run(ip, "-n", LEAF, "link", "add", "swp12", "type", "veth", "peer", "name", "eth2", "netns", NODE)
        ends = ((LEAF, "swp12"), (NODE, "eth2"))
        for space, interface in ends:  # both before either lldpd looks: it may miss that a cable came up meanwhile
            _run(ip, "-n", space, "link", "set", interface, "up")
        # lldpcli sends back the whole configuration that it has read, and lldpd's own at its start takes no lock: it
        # undoes what another changed meanwhile. So that one alone configures, from a file.
        said = {LEAF: "configure system hostname leaf04\nconfigure lldp tx-interval 1\n", NODE: ""}
        for space, interface in ends:
            written = Path(sockets[space]).with_suffix(".conf")
            written.write_text(said[space])
            stack.callback(written.unlink)
            options = ["-d", "-u", sockets[space], "-I", interface, "-O", written]
            command = bound([ip, "netns", "exec", space, lldpd, *options])
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(Path(sockets[space]).unlink, missing_ok=True)
            stack.callback(stop, process, signal.SIGTERM)
        wait_for("both listen", lambda: all(Path(socket).exists() for socket in sockets.values()))
        asking = [client, "-u", sockets[NODE], "show", "neighbors", "-f"]
        wait_for("the leaf is heard of by name", lambda: "leaf04" in _run(*asking, "json"))
        yield asking


def test_what_lldpd_tells_is_a_cable_of_the_node(neighbour: list[str], tmp_path: Path) -> None:
    """In each form that it prints; sent again, nothing changes."""
    with serve(f"sqlite:///{tmp_path / 'x.db'}", tmp_path) as server:
        for form in ("json", "json0", "keyvalue"):
            told = _run(*neighbour, form)
            server.post("/api/v1/topology?format=lldp&node=gpu-017", told.encode(), {"Content-Type": "text/plain"})
            (cable,) = server.get("/api/v1/topology")["links"]
            assert [cable[name] for name in ("switch", "port", "peer", "hca")] == ["leaf04", 12, "gpu-017", "eth2"]

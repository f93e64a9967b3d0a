"""A real OpenID provider on the loopback: discovery, authorization code flow, keys. And a server whose people sign in.

with provider(tmp_path, {"alice": {"email": "alice@example.com", "groups": ["oncall"]}}) as issuer:
    ...                                     # http://localhost:PORT

It is the package oidc-provider-mock, as a process: whoever presses a name on its page is that person.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from real.foreshock import free_port
from real.programs import bound, stop, wait_for

CLIENT = "foreshock"


@contextmanager
def provider(folder: Path, people: Mapping[str, Mapping[str, Any]], lasts_s: int = 3600) -> Iterator[str]:
    """The issuer's address.

    Args:
        people: claims by subject.
        lasts_s: how long a sign-in holds.
    """
    port = free_port()
    issuer = f"http://localhost:{port}"
    known = [word for sub, claims in people.items() for word in ("--user-claims", json.dumps({"sub": sub, **claims}))]
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), "-e", str(lasts_s), *known]
    with (folder / "provider.log").open("wb") as log:
        process = subprocess.Popen(bound(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for("the provider answers", lambda: _answers(issuer) or process.poll() is not None)
        if process.poll() is not None:
            raise RuntimeError(f"the provider ended: {(folder / 'provider.log').read_text()[-500:]}")
        yield issuer
    finally:
        stop(process, signal.SIGTERM)


def _answers(issuer: str) -> bool:
    try:
        with urlopen(f"{issuer}/.well-known/openid-configuration", timeout=5) as reply:
            return bool(json.loads(reply.read())["issuer"] == issuer)
    except (URLError, OSError):
        return False

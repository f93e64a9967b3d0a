"""A sidecar's first start: against a join token the server gives the node a token of its own, which it keeps.

    enrollment = Enrollment("gpu-017", Path("join-token"), Path("spool/token"), client)
    enrollment.run(stop)            # until there is a token; whoever sends waits meanwhile, and the spool fills

The token is written with mode 0600, whole or not at all. A node whose token was revoked asks for no other by itself:
revoking is meant. A node that has lost its disk is told that there is one already (409), and what a person does then.
"""

import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path

import orjson

from collectors.ship.transport import Backoff, ServerAnswer, ServerClient
from collectors.spool.segments import write_atomically

_LOG = logging.getLogger("foreshock.sidecar")
_PATH = "/api/v1/enroll"
_PERSON_S = 30.0  # until a person has done something about it
_PERSONS = frozenset({400, 401, 403, 404, 405, 409, 422})


class Enrollment:
    """One thread's work: `run` until there is a token, or it is stopped."""

    def __init__(self, node: str, join_file: Path, token_file: Path, client: ServerClient) -> None:
        """`client` bears the join token."""
        self._node = node
        self._join_file = join_file
        self._token_file = token_file
        self._client = client
        self._backoff = Backoff(0.5, 30.0)
        self._told: str | None = None
        self.enrolled: Callable[[], None] = lambda: None  # told when there is a new token

    def run(self, stop: threading.Event) -> None:
        """Ask until the node has a token; each different refusal is said once."""
        try:
            while not self.has_token() and not stop.is_set():
                wait_s = self._ask()
                if wait_s is None:
                    _LOG.info("node %s has a token of its own, in %s", self._node, self._token_file)
                    self.enrolled()
                    return
                stop.wait(wait_s)
        finally:
            self._client.close()

    def has_token(self) -> bool:
        """Whether the node was enrolled before."""
        try:
            return self._token_file.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _ask(self) -> float | None:
        """Ask once; None: there is a token, else seconds until the next time."""
        answer = self._client.post(_PATH, {"node": self._node})
        if answer.status == 200:
            return self._keep(answer)
        detail = answer.text or f"HTTP {answer.status}"
        if answer.status in _PERSONS:
            self._tell(f"node {self._node} gets no token with the join token of {self._join_file}: {detail}")
            return _PERSON_S * random.uniform(0.75, 1.25)  # noqa: S311  # no two nodes at once
        self._tell(f"node {self._node} waits for its token, trying again: {detail}")
        return max(self._backoff.next_s(), answer.retry_after_s or 0.0)

    def _keep(self, answer: ServerAnswer) -> float | None:
        try:
            token = orjson.loads(answer.body)["token"]
            write_atomically(self._token_file, str(token).encode(), 0o600)
        except (ValueError, KeyError, TypeError):
            self._tell("the answer to the enrolment bears no token: is --server the API's address?")
            return _PERSON_S
        except OSError as error:
            self._tell(
                f"the node's token cannot be kept in {self._token_file}: {error}; make room, then "
                f"`foreshock token revoke {self._node}` on the server, for nobody has the one that it gave"
            )
            return _PERSON_S
        return None

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            _LOG.error("%s", text)

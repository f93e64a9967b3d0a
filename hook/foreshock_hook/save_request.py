"""Requests of Foreshock that a training program saves: its node is likely to fail, or has a confirmed fault.

    from foreshock_hook.save_request import SaveRequests
    requests = SaveRequests("https://foreshock.example", "run-7", token_file="/etc/foreshock/trainer.token")
    ...
    if requests.wanted():          # on rank 0, between two steps; tell the other ranks, so that all save
        save(i)

It needs nothing but Python, as the training hook does. A thread reads `GET /runs/{run}/hints` every `every_s` seconds.
`wanted()` returns at once, raises nothing, and is True once for each request. `hints` holds the newest answer: a `swap`
names its `spare`, a `requeue` the nodes to `exclude`. While the server does not answer, nothing is requested:
`failures` counts this.
"""

from __future__ import annotations  # trainers run on older Pythons than Foreshock

import ipaddress
import json
import os
import threading
import urllib.parse
import urllib.request
from typing import Any

ACTIONS = frozenset({"checkpoint", "swap", "requeue"})
_TIMEOUT_S = 10.0
_MOST_BYTES = 1_000_000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would send the token along, wherever a redirect leads."""

    def redirect_request(self, *_: object, **_more: object) -> None:
        """No other address: the answer is an error."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _is_safe(url: str) -> bool:
    """Whether a token may go to an address: over TLS, or to this machine itself."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SaveRequests:
    """The requests of one server for one run. Of many ranks one is enough."""

    def __init__(
        self,
        server: str,
        run: str,
        *,
        job: str | None = None,
        token_file: str | None = None,
        every_s: float = 10.0,
        insecure_http: bool = False,
    ) -> None:
        """Start to read the requests.

        Args:
            server: its address, `http://` or `https://`.
            run: the run's name, as the scheduler knows the job.
            job: the job's id; by default Slurm's own, and all jobs of the run where there is none.
            token_file: a file with a token of the scope `read`; it is read anew each time.
            every_s: seconds between two reads; a hint on a job stands for a quarter of an hour.
            insecure_http: send the token over `http://` beyond this machine too: a mesh or tunnel encrypts the way.

        Raises:
            ValueError: the address is none, or the token would go to it in clear text.
        """
        self.hints: list[dict[str, Any]] = []
        self.failures = 0
        mine = job if job is not None else os.environ.get("SLURM_JOB_ID")
        query = "" if not mine else "?" + urllib.parse.urlencode({"job": mine})
        self._url = f"{server.rstrip('/')}/api/v1/runs/{urllib.parse.quote(run, safe='')}/hints{query}"
        if not self._url.startswith(("http://", "https://")):
            raise ValueError(f"{server!r} is no http:// or https:// address")
        if token_file is not None and not insecure_http and not _is_safe(self._url):
            raise ValueError(f"{server} would carry the token in clear text: use https:// there, or insecure_http=True")
        self._token_file, self._every_s = token_file, every_s
        self._seen: set[str] = set()
        self._news, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="foreshock-save-requests", daemon=True)
        self._thread.start()

    def wanted(self) -> bool:
        """Whether a save was requested since the last call."""
        if not self._news.is_set():
            return False
        self._news.clear()
        return True

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except Exception:  # noqa: BLE001 - training goes on without Foreshock
                self.failures += 1
            self._stop.wait(self._every_s)

    def _look(self) -> None:
        headers = {"Accept": "application/json"}
        if self._token_file is not None:
            with open(self._token_file, encoding="utf-8") as file:  # noqa: PTH123 - os paths alone, for old Pythons
                headers["Authorization"] = f"Bearer {file.read().strip()}"
        request = urllib.request.Request(self._url, headers=headers)  # noqa: S310 - http or https, as checked above
        with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
            hints = json.loads(answer.read(_MOST_BYTES))["items"]
        requested = [hint for hint in hints if hint["action"] in ACTIONS]
        new = {hint["id"] for hint in requested} - self._seen
        self.hints = requested
        self._seen |= new
        if new:
            self._news.set()

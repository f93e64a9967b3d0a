"""Runs one test of a node and watches over it: `python -m schedulers.lifecycle.validation_process TIMEOUT_S WORD...`.

A process of its own, so that nothing of a test outlives its server: where the server dies, even by SIGKILL, this one's
standard input ends, and the test's whole process group is killed. The same at the timeout, and when the test's first
process has ended but others of its group have not. Prints one JSON object: `exit_code timed_out output`, where `output`
is the last 4 kB of what the test said on both of its outputs.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress

KEPT_BYTES = 4096
NOT_STARTED = 127  # as shells say it
_POLL_S = 0.2
_PART = 65_536


def main(timeout_s: float, words: list[str]) -> dict[str, object]:
    """Run the test to its end, its timeout, or ours."""
    try:
        test = subprocess.Popen(  # noqa: S603  # the operator's own command, in words: no shell reads it
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
        )
    except (OSError, ValueError) as error:
        return {"exit_code": NOT_STARTED, "timed_out": False, "output": f"cannot be started: {error}", "begun": False}
    said = bytearray()
    try:
        timed_out = _watch(test, time.monotonic() + timeout_s, said)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(test.pid, signal.SIGKILL)
        code = test.wait()
    return {"exit_code": code, "timed_out": timed_out, "output": said.decode("utf-8", "replace"), "begun": True}


def _watch(test: "subprocess.Popen[bytes]", deadline: float, said: bytearray) -> bool:
    """Keep the end of what the test says until it ends; whether its time was up before."""
    if test.stdout is None:
        raise ValueError("the test's output is not read")
    with selectors.DefaultSelector() as ready:
        ready.register(test.stdout, selectors.EVENT_READ, test.stdout)
        ready.register(sys.stdin.buffer, selectors.EVENT_READ)
        while True:
            ended = test.poll() is not None
            for key, _ in ready.select(0 if ended else _POLL_S):
                part = os.read(key.fd, _PART)
                if key.data is None and not part:
                    raise SystemExit(1)  # whoever wanted to know is gone
                if not part:
                    ready.unregister(key.fileobj)
                said += part if key.data is not None else b""
                del said[:-KEPT_BYTES]
            if ended:
                return False
            if time.monotonic() >= deadline:
                return True


if __name__ == "__main__":
    json.dump(main(float(sys.argv[1]), sys.argv[2:]), sys.stdout)

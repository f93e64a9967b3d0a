"""Overload is to be a plateau: heartbeats at a fixed rate, each on a connection of its own, from impatient senders.

    python -m benchmarks.overload --url http://127.0.0.1:10870 --rate 3000 --seconds 60

A sender that has no answer within 3 s hangs up. Shown for each 5 s: answers by status, those given up, and how long
the answers took; then, at a tenth of the rate for 10 s, whether the server is itself again. Starts no server; sends no
token. Lines that come later than each 5 s mean that this program is what is overloaded: lower the rate.
"""

import argparse
import asyncio
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

_PATIENCE_S = 3.0
_SHOWN_EVERY_S = 5.0
_MOST_OPEN = 15_000


@dataclass(slots=True)
class Seen:
    """What came back since it was last shown."""

    results: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)

    def show(self, at_s: float) -> None:
        """Print it, and begin anew."""
        took = sorted(self.took_s) or [0.0]
        median, slow = took[len(took) // 2], took[int(len(took) * 0.99)]
        told = ", ".join(f"{name}: {count}" for name, count in sorted(self.results.items()))
        print(f"{at_s:5.0f} s  {told}; p50 {median * 1e3:.0f} ms, p99 {slow * 1e3:.0f} ms", flush=True)
        self.results, self.took_s = Counter(), []


def _request(host: str, node: int) -> bytes:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    beat = {
        "node": f"n{node}",
        "time": now,
        "started": now,
        "version": "0",
        "interval_s": 60,
        "sources": [],
        "lost": {},
    }
    body = orjson.dumps(beat)
    head = (
        f"POST /api/v1/heartbeats HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _send(host: str, port: int, node: int, seen: Seen) -> None:
    began, writer = time.perf_counter(), None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(_request(host, node))
            answer = await reader.read(200)
        seen.results[answer[9:12].decode() or "closed"] += 1
        seen.took_s.append(time.perf_counter() - began)
    except TimeoutError:
        seen.results["given up"] += 1
    except OSError as error:
        seen.results[type(error).__name__] += 1
    finally:
        if writer is not None:
            writer.transport.abort()


async def drive(host: str, port: int, rate: float, seconds: float) -> None:
    """Send at a rate whatever comes back, and show it."""
    seen, open_now = Seen(), set[asyncio.Task[None]]()
    began = shown = time.perf_counter()
    sent = 0
    while (now := time.perf_counter()) - began < seconds:
        for _ in range(min(int((now - began) * rate) - sent, _MOST_OPEN - len(open_now))):
            task = asyncio.create_task(_send(host, port, sent % 12_500, seen))
            open_now.add(task)
            task.add_done_callback(open_now.discard)
            sent += 1
        if now - shown >= _SHOWN_EVERY_S:
            shown = now
            seen.show(now - began)
        await asyncio.sleep(0.005)
    await asyncio.gather(*open_now)
    seen.show(time.perf_counter() - began)


def main() -> None:
    """Read the options, overload, and look whether it passes."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", required=True)
    options.add_argument("--rate", type=float, default=3000.0)
    options.add_argument("--seconds", type=float, default=60.0)
    given = options.parse_args()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    url = urlsplit(given.url)
    print(f"{given.rate:.0f} heartbeats a second")
    asyncio.run(drive(url.hostname or "127.0.0.1", url.port or 80, given.rate, given.seconds))
    print(f"{given.rate / 10:.0f} a second")
    asyncio.run(drive(url.hostname or "127.0.0.1", url.port or 80, given.rate / 10, 10.0))


if __name__ == "__main__":
    main()

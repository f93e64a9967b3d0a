"""`foreshock consume`: from a NATS JetStream queue into the store, until SIGTERM."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, print_text
from cli.console.secret_arguments import SecretOption
from cli.console.store import open_store
from cli.queue.nats_stream import StreamSettings
from cli.replay.clock import real_clock
from collectors.ship.transport import ServerAccess
from parsers.site_rules.rules import RulesFile, no_rules
from store.visible_text import visible_exposition

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from cli.queue.consumer import Consumer

_STOP_S = 5.0


@click.command()
@DB_OPTION
@click.option(
    "--nats",
    "queue",
    cls=SecretOption,
    required=True,
    envvar="FORESHOCK_NATS",
    help="nats://[USER:PASSWORD@]HOST:4222",
)
@click.option("--token-file", type=click.Path(path_type=Path), help="Credentials file of NATS, or a token.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Whom to trust; default: as the system does.")
@click.option("--cert-file", type=click.Path(path_type=Path), help="File with a client certificate (and its key).")
@click.option("--key-file", type=click.Path(path_type=Path), help="File with the client certificate's key.")
@click.option("--insecure-http", is_flag=True, help="Send the token without TLS too: a mesh or tunnel encrypts it.")
@click.option("--stream", default="foreshock", show_default=True, help="Made where it is not there.")
@click.option("--durable", default="store", show_default=True, help="Consumers of one name share the work.")
@click.option("--batch", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Messages a transaction.")
@click.option(
    "--max-gb", default=4.0, show_default=True, type=click.FloatRange(0.01), help="Size of a stream made here."
)
@click.option(
    "--replicas", default=1, show_default=True, type=click.IntRange(1, 5), help="Copies of a stream made here."
)
@click.option(
    "--ack-wait-s", default=60.0, show_default=True, type=click.FloatRange(3), help="Of a consumer made here."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Serve /metrics here.")
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address of /metrics.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file: rules, body limit.")
def consume(url: str, queue: str, port: int | None, file: Path | None, **given: object) -> None:
    """Store the batches that sidecars publish through NATS JetStream. Any number may run side by side."""
    from api.server.heartbeats import HeartbeatWriter
    from api.server.state import State
    from cli.config.server import load_settings
    from cli.queue.consumer import Consumer

    if importlib.util.find_spec("nats") is None:
        raise Failure("`foreshock consume` needs the package nats-py: install foreshock[nats]")
    settings = load_settings(file, os.environ)
    rules = no_rules if settings.rules is None else RulesFile(settings.rules).current
    state = State(settings, open_store(url, create=True), real_clock, rules=rules)
    wanted = StreamSettings(
        name=str(given["stream"]),
        durable=str(given["durable"]),
        max_bytes=int(float(str(given["max_gb"])) * 1e9),
        replicas=int(str(given["replicas"])),
        ack_wait_s=float(str(given["ack_wait_s"])),
        batch=int(str(given["batch"])),
    )
    access = ServerAccess(
        token_file=_path(given["token_file"]),
        ca_file=_path(given["ca_file"]),
        cert_file=_path(given["cert_file"]),
        key_file=_path(given["key_file"]),
        insecure_http=bool(given["insecure_http"]),
    )
    consumer = Consumer(state, wanted)
    if port is not None:
        from collectors.agent.metrics_server import MetricsServer

        MetricsServer(_Figures(state.metrics.registry), str(given["listen"]), port)
    state.names.refresh_at_start(state.engine, state.settings.inventory)
    failed = state.metrics.failures.labels("heartbeats").inc
    writer = HeartbeatWriter(state.heartbeats, state.engine, failed, state.refresh_names)
    writer.start()
    try:
        asyncio.run(_until_reported(consumer, queue, access))
    except Exception as error:
        raise Failure(f"cannot consume from {_shown(queue)}: {type(error).__name__}: {error}") from error
    finally:
        writer.stop(_STOP_S)
        state.engine.dispose()


@dataclass(frozen=True, slots=True)
class _Figures:
    """The consumer's own counters; it has no sources that could wait."""

    registry: CollectorRegistry

    def page(self) -> bytes:
        """As Prometheus reads them."""
        from prometheus_client import generate_latest

        return visible_exposition(generate_latest(self.registry))

    def blocked_sources(self) -> Sequence[str]:
        """None."""
        return ()


async def _until_reported(consumer: Consumer, queue: str, access: ServerAccess) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print_text(f"Consuming from {_shown(queue)}")
    await consumer.run(queue, access, stop)


def _path(value: object) -> Path | None:
    return value if isinstance(value, Path) else None


def _shown(queue: str) -> str:
    """The address without its password."""
    head, at, tail = queue.rpartition("@")
    return f"{head.split('://')[0]}://{tail}" if at else queue

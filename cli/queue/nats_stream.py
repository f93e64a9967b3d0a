"""The stream that sidecars publish into and `foreshock consume` takes from: made where it is not there.

A message stays until it is stored (work queue), and a full stream refuses new ones rather than forget old ones: what a
publisher was told is kept. Refused messages wait in the sidecars' spools. One node fills its own subjects alone: a
message put back for later would take a place of all (`max_ack_pending`), so the queue itself refuses what is too much.
"""

from dataclasses import dataclass
from typing import Any

from collectors.ship.nats_transport import KINDS, PREFIX

REJECTED_SUBJECT = f"{PREFIX}.rejected"
# How long JetStream remembers ids, to drop what is published twice. The store knows them for ever.
_DEDUP_S = 600.0
_REJECTED_BYTES = 64 * 1024 * 1024
_REJECTED_DAYS = 30
_DAY_S = 86_400.0
# Messages of one subject that wait: what one node sends has no more of the stream than that, whatever it sends.
MOST_OF_A_SUBJECT = 250


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How the stream is made where it is not there; one that is there stays as its operator made it."""

    name: str
    durable: str
    max_bytes: int
    replicas: int
    ack_wait_s: float
    batch: int


async def ensure_stream(stream: Any, settings: StreamSettings) -> None:
    """Make the stream, that of refused records, and the durable consumer, unless they are there.

    Args:
        stream: nats-py's JetStream context.

    Raises:
        nats.errors.Error: JetStream is not on, or has no room for a stream of this size.
    """
    from nats.js import api

    wanted = api.StreamConfig(
        name=settings.name,
        subjects=[f"{PREFIX}.{kind}.*" for kind in KINDS],
        retention=api.RetentionPolicy.WORK_QUEUE,
        discard=api.DiscardPolicy.NEW,
        discard_new_per_subject=True,
        max_msgs_per_subject=MOST_OF_A_SUBJECT,
        storage=api.StorageType.FILE,
        max_bytes=settings.max_bytes,
        num_replicas=settings.replicas,
        duplicate_window=_DEDUP_S,
    )
    refused = api.StreamConfig(
        name=f"{settings.name}-rejected",
        subjects=[REJECTED_SUBJECT],
        storage=api.StorageType.FILE,
        max_bytes=_REJECTED_BYTES,
        max_age=_REJECTED_DAYS * _DAY_S,
        num_replicas=settings.replicas,
    )
    for config in (wanted, refused):
        if not await _there(stream.stream_info(config.name)):
            await stream.add_stream(config)
    if not await _there(stream.consumer_info(settings.name, settings.durable)):
        consumer = api.ConsumerConfig(
            durable_name=settings.durable,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=settings.ack_wait_s,
            max_deliver=-1,
            max_ack_pending=max(1000, settings.batch * 20),
        )
        await stream.add_consumer(settings.name, consumer)


async def _there(requested: Any) -> bool:
    from nats.js.errors import NotFoundError

    try:
        await requested
    except NotFoundError:
        return False
    return True

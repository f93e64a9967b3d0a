"""The training program's own log: Megatron's iterations, NCCL's complaints, PyTorch's ends."""

# ruff: noqa: E501  # a line of a log is kept whole

import random
from collections.abc import Sequence

from scenarios.archive import Archive, Job
from scenarios.lines import Message
from scenarios.site import GPUS

STEP_S = 30.0
_BAR = "=" * 60
_THIN = "-" * 60


def rank_of(job: Job, place: int, gpu: int) -> int:
    """The rank that a node's GPU bears: nodes in the order of the list, eight ranks each."""
    return job.places.index(place) * GPUS + gpu


def begin(archive: Archive, job: Job, steps: int, until_s: float, with_addresses: bool = True) -> None:
    """The log's beginning, and its last iterations up to a time."""
    log, start = archive.training[job.name], job.start_s
    ranks = len(job.places) * GPUS
    log.append((start + 20, f"using world size: {ranks}, data-parallel size: {ranks // 32}"))
    if with_addresses:
        for place in job.places:
            pid = 180_000 + place
            log.append(
                (
                    start + 25,
                    f"{archive.site.nodes[place]}:{pid}:{pid} [0] NCCL INFO Bootstrap : Using "
                    f"eth0:{archive.site.address(place)}<0>",
                )
            )
    log.append((start + 40, "[after megatron is initialized] datetime: {iso} "))
    log.append((start + 80, "[before the start of training step] datetime: {iso} "))
    for back in range(steps, 0, -1):
        iteration(archive, job, until_s - (back - 1) * STEP_S - 5.0, 4000 - back * 10, 3000.0)


def iteration(archive: Archive, job: Job, at: float, number: int, step_ms: float, loss: str = "2.100000E+00") -> None:
    """One printed iteration."""
    archive.training[job.name].append(
        (
            at,
            f" [{{iso}}] iteration {number:8d}/  500000 | consumed samples: {number * 1024:12d} | elapsed time per "
            f"iteration (ms): {step_ms:.1f} | learning rate: 1.500000E-04 | global batch size:  1024 | lm loss: {loss} | "
            "loss scale: 1.0 | grad norm: 0.312 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        )
    )


def watchdog(archive: Archive, job: Job, at: float, silent: Sequence[int] = (), limit_s: int = 600) -> None:
    """Every rank's watchdog ends the collective that does not end, but for the ranks that say nothing."""
    log, gone = archive.training[job.name], set(silent)
    rng = random.Random(f"{job.number} {at}")
    number = 40_000 + job.number % 1000
    for rank in range(len(job.places) * GPUS):
        if rank in gone:
            continue
        after = at + rng.uniform(0, 3.0)
        log.append(
            (
                after,
                f"[rank{rank}]:[E{{glog}} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
                f"timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)={limit_s * 1000}) "
                f"ran for {limit_s * 1000 + rng.randint(20, 900)} milliseconds before timing out.",
            )
        )
        if rank % 4 == 0:
            log.append(
                (
                    after + 0.06,
                    f"[rank{rank}]:[E{{glog}} ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  "
                    f"failure detected by watchdog at work sequence id: {number} PG status: last enqueued work: "
                    f"{number + 2}, last completed work: {number - 1}",
                )
            )


def complaints(
    archive: Archive, job: Job, at: float, victims: Sequence[int], rail: int | None, rng: random.Random
) -> None:
    """Neighbours that cannot reach a node any more name its address, not their own."""
    log = archive.training[job.name]
    for victim in victims:
        others = [place for place in job.places if place not in victims]
        for place in rng.sample(others, min(len(others), rng.randint(2, 4))):
            own = rng.randrange(GPUS) if rail is None else rail
            pid = 180_000 + place
            log.append(
                (
                    at + rng.uniform(0, 6),
                    f"[{{iso}}] {archive.site.nodes[place]}:{pid}:{pid + 9} [{own}] transport/net_ib.cc:2453 NCCL WARN NET/IB: "
                    f"Got completion from peer {archive.site.address(victim)}<{rng.randint(30_000, 60_000)}> with status=12 "
                    f"opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:{archive.site.address(place)} remoteGids"
                    f"::ffff:{archive.site.address(victim)} hca mlx5_{own}",
                )
            )


def port_error(archive: Archive, job: Job, at: float, place: int, rail: int) -> None:
    """The host whose adapter lost its link."""
    pid = 180_000 + place
    archive.training[job.name].append(
        (
            at,
            f"[{{iso}}] {archive.site.nodes[place]}:{pid}:{pid + 9} [{rail}] transport/net_ib.cc:96 NCCL WARN NET/IB : "
            f"mlx5_{rail}:1 Got async event : port error",
        )
    )


def raised(archive: Archive, job: Job, at: float, rank: int, error: str, where: str = "pretrain_gpt.py") -> None:
    """A rank's traceback."""
    archive.training[job.name] += [
        (at, f"[rank{rank}]: Traceback (most recent call last):"),
        (at + 0.001, f'[rank{rank}]:   File "/workspace/megatron/{where}", line 214, in <module>'),
        (at + 0.002, f"[rank{rank}]:     pretrain(train_valid_test_datasets_provider, model_provider, forward_step)"),
        (at + 0.003, f"[rank{rank}]: {error}"),
    ]


def root_cause(archive: Archive, job: Job, at: float, place: int, gpu: int, code: int = 1) -> None:
    """What the launcher prints in the end: who ended first, by host and rank."""
    rank = rank_of(job, place, gpu)
    clock = "{iso}"
    archive.training[job.name] += [
        (
            at,
            f"E{{glog}} {190_000 + place} torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: {code}) "
            f"local_rank: {gpu} (pid: {200_000 + rank}) of binary: /usr/bin/python3",
        ),
        (at + 0.01, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
        (at + 0.011, _BAR),
        (at + 0.012, "pretrain_gpt.py FAILED"),
        (at + 0.013, _THIN),
        (at + 0.014, "Root Cause (first observed failure):"),
        (at + 0.015, "[0]:"),
        (at + 0.016, f"  time      : {clock.replace(' ', '_')}"),
        (at + 0.017, f"  host      : {archive.site.nodes[place]}"),
        (at + 0.018, f"  rank      : {rank} (local_rank: {gpu})"),
        (at + 0.019, f"  exitcode  : {code} (pid: {200_000 + rank})"),
        (at + 0.020, "  error_file: <N/A>"),
        (at + 0.021, "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"),
        (at + 0.022, _BAR),
    ]


def straggler_report(job: Job, archive: Archive, place: int, gpu: int, score: float) -> list[Message]:
    """NVRx's report of the ranks that are behind."""
    rank, ranks = rank_of(job, place, gpu), len(job.places) * GPUS
    other = (rank + 11) % ranks
    return [
        (0.0, "GPU relative performance:"),
        (0.001, f" Worst performing 2/{ranks} ranks:"),
        (0.002, f"  Rank={rank} Node={archive.site.nodes[place]} Score={score:.2f}"),
        (0.003, f"  Rank={other} Node={archive.site.nodes[job.places[other // GPUS]]} Score=0.98"),
        (0.004, f"STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: [{rank}]"),
    ]

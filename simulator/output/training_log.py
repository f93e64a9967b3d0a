"""The training program's log, in the newer Megatron form: bracketed UTC times on iteration lines, none on the others.

[2025-03-01 04:05:06] iteration     1200/  500000 | ... | elapsed time per iteration (ms): 8000.0 | ...
"""

import math

from simulator.site import Parameters, SimulationSettings, SiteLayout
from simulator.training.accounting import SLOW
from simulator.training.attempt import SimulatedAttempt, SimulatedRun, TrainingStep

_TOTAL = 500_000
_BATCH = 1024
_TORCH = "torch.distributed.elastic.multiprocessing.api: [ERROR]"


def log_lines(
    settings: SimulationSettings, layout: SiteLayout, run: SimulatedRun, log_interval: int
) -> list[tuple[int, str]]:
    """A run's whole log as (ms from the start at which it is written, line), in time order."""
    lines: list[tuple[int, str]] = []
    for attempt in run.attempts:
        if attempt.hidden == "log":
            continue
        own = _begin(settings, attempt)
        for place, step in enumerate(attempt.steps):
            own += _step(settings, run.name, step, log_interval)
            if place and step.kind == "iteration" and settings.training == "varied" and _is_slow(step):
                own.append((step.end_ms, _straggler(attempt)))
        lines += own + _end(settings, layout, attempt)
    # What ends in the background comes between the others, as does an attempt that outlives the next one's start.
    return sorted(lines, key=lambda line: line[0])


def _is_slow(step: TrainingStep) -> bool:
    return step.length_ms - step.data_ms > SLOW * Parameters().print_interval_s * 1000


def _straggler(attempt: SimulatedAttempt) -> str:
    """What NVRx says of the rank that holds the others up."""
    rank = attempt.job_id * 7 % (len(attempt.nodes) * 8)
    return (
        "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. "
        f"Affected ranks: {{StragglerId(rank={rank}, node='{attempt.run}-node')}}"
    )


def _stamp(settings: SimulationSettings, time_ms: int) -> str:
    return f"{settings.moment(time_ms):%Y-%m-%d %H:%M:%S}"


def _timer(name: str, length_ms: float) -> list[str]:
    value = f"{length_ms:.2f}"
    return ["(min, max) time across ranks (ms):", f"    {name + ' ':.<48}: ({value}, {value})"]


def _begin(settings: SimulationSettings, attempt: SimulatedAttempt) -> list[tuple[int, str]]:
    start, first = attempt.start_ms, attempt.first_ms
    loading = first - attempt.load_ms
    built = start + attempt.startup_ms // 2 // 1000 * 1000

    def dated(name: str, time: int) -> tuple[int, str]:
        return time, f"[{name}] datetime: {_stamp(settings, time)} "

    lines = [
        (start, f"using world size: {len(attempt.nodes) * 8}, data-parallel size: {len(attempt.nodes)}"),
        dated("after megatron is initialized", start + attempt.startup_ms // 4 // 1000 * 1000),
        dated("after model, optimizer, and learning rate scheduler are built", built),
        dated("after dataloaders are built", loading),
    ]
    where = f"/ckpt/{attempt.run}"
    if attempt.loaded is None:
        lines.append((loading, f"WARNING: could not find the metadata file {where}/latest_checkpointed_iteration.txt"))
        lines.append((loading, "    will not load any checkpoints and will start from random"))
    else:
        lines.append((loading, f" loading distributed checkpoint from {where} at iteration {attempt.loaded}"))
        text = f"  successfully loaded checkpoint from {where} [ t 1/8, p 1/8 ] at iteration {attempt.loaded}"
        lines.append((first, text))
        lines += [(first, line) for line in _timer("load-checkpoint", attempt.load_ms)]
    lines.append((first, "training ..."))
    lines.append(dated("before the start of training step", first))
    return lines


def _step(settings: SimulationSettings, run: str, step: TrainingStep, log_interval: int) -> list[tuple[int, str]]:
    end, where = step.end_ms, f"/ckpt/{run}"
    if step.kind == "iteration":
        texts = [_iteration(settings, step, log_interval)]
        if step.data_ms:
            texts += _timer("batch-generator", step.data_ms / log_interval)
        return [(end, line) for line in texts]
    if step.kind == "evaluation":
        lines = [*_timer("evaluate", step.length_ms), "-" * 90]
        lines.append(
            f" validation loss at iteration {step.iteration} | lm loss value: {_loss(step.iteration):.6E} "
            f"| lm loss PPL: {math.exp(_loss(step.iteration)):.6E} | "
        )
        return [(end, line) for line in lines]
    saving = (step.begin_ms, f"saving checkpoint at iteration {step.iteration:7d} to {where} in torch_dist format")
    if step.kind == "save_unfinished":
        return [saving]
    if step.kind == "save_async":
        return _in_background(step, where, saving)
    done = f"  successfully saved checkpoint from iteration {step.iteration:7d} to {where}"
    return [saving, (end, done), *((end, line) for line in _timer("save-checkpoint", step.length_ms))]


def _in_background(step: TrainingStep, where: str, saving: tuple[int, str]) -> list[tuple[int, str]]:
    """A save that goes on beside the iterations: its beginning, its stall, and its end if it had one."""
    texts = [f"  scheduled an async checkpoint save at iteration {step.iteration:7d} to {where}"]
    lines = [saving, *((step.end_ms, line) for line in (*texts, *_timer("save-checkpoint", step.length_ms)))]
    if step.done_ms is not None:
        lines.append((step.done_ms, f"  successfully saved checkpoint from iteration {step.iteration:7d} to {where}"))
    return lines


def _loss(iteration: int) -> float:
    return 1.7 + 9.0 / math.sqrt(1.0 + iteration / 20.0) + 0.01 * math.sin(iteration / 50 * 1.7)


def _iteration(settings: SimulationSettings, step: TrainingStep, log_interval: int) -> str:
    elapsed_ms = (step.length_ms + step.folded_ms) / log_interval
    rate = 3e-4 * min(1.0, step.iteration / 2000)
    return (
        f" [{_stamp(settings, step.end_ms)}] iteration {step.iteration:8d}/{_TOTAL:8d} | "
        f"consumed samples: {step.iteration * _BATCH:12d} | "
        f"elapsed time per iteration (ms): {elapsed_ms:.1f} | learning rate: {rate:.6E} | "
        f"global batch size: {_BATCH:5d} | lm loss: {_loss(step.iteration):.6E} | loss scale: 1.0 | "
        "grad norm: 0.412 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def _end(settings: SimulationSettings, layout: SiteLayout, attempt: SimulatedAttempt) -> list[tuple[int, str]]:
    """How the attempt stops: its own error with its time, or what the scheduler writes into the log."""
    fault = attempt.fault
    if fault is None:
        done = attempt.steps[-1].iteration
        return [
            (attempt.end_ms, f"[exiting program at iteration {done}] datetime: {_stamp(settings, attempt.end_ms)} ")
        ]
    lines: list[tuple[int, str]] = []
    at, host = fault.fault_ms, layout.names[fault.node]
    if fault.kind.name in ("software", "storage"):
        words = "RuntimeError: CUDA error: an illegal memory access was encountered"
        if fault.kind.name == "storage":
            words = f"OSError: [Errno 5] Input/output error: '/data/shard-{fault.variant:04d}.bin'"
        elif fault.variant >= 60:
            words = "ValueError: batch contains token id 128264 outside the vocabulary"
        failed = f"failed (exitcode: 1) local_rank: {fault.gpu} (pid: {40_000 + attempt.job_id})"
        lines = [
            (at, "Traceback (most recent call last):"),
            (at, '  File "/opt/megatron/pretrain_gpt.py", line 265, in <module>'),
            (at, f"[{_stamp(settings, at)}] {words}"),
            (at, f"[{_stamp(settings, at)},000] {_TORCH} {failed} of binary: /usr/bin/python3"),
        ]
    end = f"{settings.moment(attempt.end_ms):%Y-%m-%dT%H:%M:%S}"
    why = " DUE TO NODE FAILURE" if attempt.state == "NODE_FAIL" else ""
    first = layout.names[attempt.nodes[0]]
    lines.append(
        (attempt.end_ms, f"slurmstepd: error: *** JOB {attempt.job_id} ON {first} CANCELLED AT {end}{why} ***")
    )
    if len(lines) > 1:
        lines.append((attempt.end_ms, f"srun: error: {host}: task {fault.gpu}: Exited with exit code 1"))
    return lines

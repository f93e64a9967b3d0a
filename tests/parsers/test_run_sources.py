"""What programs say of their own work, beside logs: the hook's lines, spans, Google's entries, listings, queues."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from parsers.formats.checkpoints import CheckpointEntry, iteration_in, run_of, saves_of
from parsers.registry import PARSERS
from parsers.text.parser import Context, parse
from store.records.event import Event
from store.records.job import job_from_event

NANO = 1740801906_000_000_000


def decoded(name: str, lines: Iterable[str], errors: list[str] | None = None, run: str | None = None) -> list[Event]:
    """The events of lines."""
    broken: list[str] = [] if errors is None else errors
    return list(
        parse(PARSERS[name].make(Context(run=run)), lines, lambda line, error: broken.append(f"{line}: {error}"))
    )


def hook(what: str = "step", **told: Any) -> str:
    """A line of the hook."""
    base = {"foreshock_hook": 1, "time": "2025-03-01T04:05:06.5Z", "run": "run-7", "what": what, "rank": 0, "node": "n"}
    return json.dumps(base | told)


def test_the_hooks_line_names_its_run() -> None:
    """Two runs may share a file; without a name the reader's counts."""
    assert decoded("hook", [hook()], run="file")[0].run() == "run-7"
    assert decoded("hook", [hook(run="")], run="file")[0].run() == "file"


def test_the_hooks_error_is_judged_by_its_words() -> None:
    """As the same words in a log would be."""
    (event,) = decoded("hook", [hook("error", error="OSError", message="[Errno 28] No space left on device")])
    assert (event.kind, event.cause, event.severity) == ("training_error", "storage", "error")


def test_a_launcher_may_put_something_before_the_hooks_line() -> None:
    """Where the file is the program's standard output."""
    assert decoded("hook", [f"[default0]:{hook()}", "another line"])[0].kind == "iteration"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (hook()[:60], "killed while it wrote"),
        (hook("dance"), "older than the hook"),
        (hook(time="soon"), "no time"),
    ],
)
def test_a_broken_line_of_the_hook_is_counted(line: str, why: str) -> None:
    """And says what to do."""
    errors: list[str] = []
    assert decoded("hook", [line, hook()], errors) != []
    assert len(errors) == 1
    assert why in errors[0]


def span(name: str, start: float, end: float, **told: Any) -> dict[str, Any]:
    """A span in OTLP's JSON; other keys are attributes."""
    keys = {key: told.pop(key) for key in ("spanId", "parentSpanId", "status", "events") if key in told}
    return {
        "name": name,
        "startTimeUnixNano": str(NANO + int(start * 1e9)),
        "endTimeUnixNano": str(NANO + int(end * 1e9)),
        "attributes": [
            {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
            for key, value in told.items()
        ],
        **keys,
    }


def request(*spans: dict[str, Any], **resource: str) -> dict[str, Any]:
    """A request of one resource."""
    told = [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in resource.items()]
    return {"resourceSpans": [{"resource": {"attributes": told}, "scopeSpans": [{"spans": list(spans)}]}]}


def test_each_resource_of_a_request_has_its_own_run() -> None:
    """A collector puts several programs' spans into one line."""
    both = request(span("step", 0, 1), service__name="a")
    both["resourceSpans"] += request(span("step", 0, 2), foreshock__run="b", service__name="x")["resourceSpans"]
    assert [(event.run(), event.attributes["elapsed_ms"]) for event in decoded("otel", [json.dumps(both)])] == [
        ("a", 1000.0),
        ("b", 2000.0),
    ]
    printed = json.dumps(request(span("step", 0, 1), service__name="a"), indent=1).split("\n")
    assert [event.run() for event in decoded("otel", printed)] == ["a"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Training Step", "iteration"),
        ("foreshock.step", "iteration"),
        ("save-checkpoint", "checkpoint_save"),
        ("checkpoint.load", "checkpoint_load"),
        ("Evaluate", "evaluation"),
        ("model_initialization", "training_phase"),
        ("GET /metrics", None),
    ],
)
def test_names_of_spans_are_known_however_they_are_written(name: str, kind: str | None) -> None:
    """Large letters, blanks, dots; others say nothing."""
    found = [event.kind for event in decoded("otel", [json.dumps(request(span(name, 0, 1, step=3)))])]
    assert [one for one in found if one != "checkpoint_save_start"] == ([] if kind is None else [kind])


def test_a_save_in_the_background_is_safe_with_its_finalization() -> None:
    """That of its iteration, where both tell one."""
    spans = [
        span("checkpoint_save_async", 1, 1.5, current_iteration=10),
        span("checkpoint_save_async", 3, 3.25, current_iteration=20),
        span("checkpoint_save_finalization", 3, 5, current_iteration=20),
        span("checkpoint_save_finalization", 5, 6),
        span("checkpoint_save_finalization", 6, 7),
    ]
    found = decoded("otel", [json.dumps(request(*spans))])
    saved = [event.attributes for event in found if event.kind == "checkpoint_save"]
    assert [(one.get("iteration"), one.get("blocking_ms")) for one in saved] == [(20, 250.0), (10, 500.0), (None, None)]


@pytest.mark.parametrize(
    "changed",
    [{"endTimeUnixNano": "x"}, {"endTimeUnixNano": str(NANO - 10**9)}, {"startTimeUnixNano": True}, {"name": ""}],
)
def test_a_span_without_its_times_says_nothing(changed: dict[str, Any]) -> None:
    """Nor does it stop the others."""
    found = decoded("otel", [json.dumps(request({**span("step", 0, 1), **changed}, span("step", 1, 2)))])
    assert len(found) == 1


def goodput(**payload: Any) -> str:
    """An entry's payload of the job llm."""
    return json.dumps({"job_name": "llm", **payload})


def test_a_step_is_done_when_the_next_one_starts() -> None:
    """Steps that were not logged are covered; a step that ran when the program was killed is not told."""
    lines = [goodput(step_count=n, step_start_time=100.0 + at) for n, at in ((10, 0), (11, 2), (21, 22))]
    found = decoded("mlgoodput", lines)
    assert [(e.attributes["iteration"], e.attributes["iterations"], e.attributes["elapsed_ms"]) for e in found] == [
        (11, 1, 2000.0),
        (21, 10, 2000.0),
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("eval_step", "evaluation"),
        ("checkpoint_restore", "checkpoint_load"),
        ("ckpt", "checkpoint_save"),
        ("input_pipeline", "data_wait"),
        ("coffee", "training_phase"),
    ],
)
def test_a_sites_own_event_is_known_by_its_name(name: str, kind: str) -> None:
    """It ends the step that ran before it."""
    lines = [
        goodput(step_count=1, step_start_time=100.0),
        goodput(custom_badput_event_type=name, custom_badput_event_start_time=103.0),
        goodput(custom_badput_event_type=name, custom_badput_event_end_time=105.0),
        goodput(step_count=2, step_start_time=105.0),
        goodput(job_end_time=106.0),
    ]
    found = decoded("mlgoodput", lines)
    assert [event.kind for event in found] == ["iteration", kind, "iteration", "training_end"]
    assert [event.attributes.get("elapsed_ms") for event in found if event.kind == "iteration"] == [3000.0, 1000.0]
    assert found[1].attributes["duration_ms"] == 2000.0


@pytest.mark.parametrize("value", [True, "soon", -1, 1e300, None])
def test_an_entry_without_a_time_says_nothing(value: Any) -> None:
    """Whatever stands there."""
    assert decoded("mlgoodput", [goodput(job_start_time=value)]) == []


@pytest.mark.parametrize(
    ("name", "iteration"),
    [
        ("iter_0001000", 1000),
        ("global_step100", 100),
        ("checkpoint-500", 500),
        ("step-7", 7),
        ("epoch=1-step=500.ckpt", 500),
        ("ep0-ba500", 500),
        ("500", 500),
        ("500.orbax-checkpoint-tmp-17", 500),
        ("tmp-checkpoint-500", 500),
        ("model-00001-of-00030.safetensors", None),
        ("events.out.tfevents.1740801907", None),
        ("run-7", None),
        ("latest", None),
    ],
)
def test_the_names_of_saves_tell_their_iteration(name: str, iteration: int | None) -> None:
    """As each trainer writes them."""
    assert iteration_in(name) == iteration
    assert iteration_in("500", is_folder=False) is None


@pytest.mark.parametrize(
    ("text", "whole"), [("10", True), ("20", True), ("5", False), ("global_step10", True), ("", True)]
)
def test_a_tracker_tells_which_saves_are_whole(text: str, whole: bool) -> None:
    """One that names an earlier save was not written since; where it names none, its time tells."""
    entries = [CheckpointEntry("/c/iter_10/a", 100.0, 5), CheckpointEntry("/c/latest", 100.5, 2, text=text)]
    assert [save.whole for save in saves_of(entries, "/c")] == [whole]


def test_a_marker_beside_a_save_tells_that_it_is_unfinished() -> None:
    """NeMo writes one, and deletes it at the end."""
    name = "gpt--step=500-consumed_samples=1.0"
    entries = [CheckpointEntry(f"/c/{name}/a.distcp", 1.0, 5), CheckpointEntry(f"/c/{name}/.metadata", 2.0, 5)]
    assert saves_of(entries, "/c")[0].whole is True
    assert saves_of(entries[:1], "/c")[0].whole is False
    assert saves_of([*entries, CheckpointEntry(f"/c/{name}-unfinished", 1.0, 0)], "/c")[0].whole is False


def test_names_above_the_listed_folder_say_nothing() -> None:
    """A store may lie under a folder that is called like a save."""
    (save,) = saves_of([CheckpointEntry("/data/step-3/run-7/iter_10/a", 1.0, 5)], "/data/step-3/run-7")
    assert (save.name, save.run) == ("iter_10", "run-7")
    assert run_of("/data/llm/checkpoints") == "llm"


def test_a_listing_without_its_folders_is_read_too() -> None:
    """`find -type f`; and its first line may be a file."""
    found = decoded(
        "checkpoints", ["1740801907.5000000000 7 f /c/run-7/iter_10/a", "1740801909.0000000000 7 f /c/run-7/latest"]
    )
    assert [(event.kind, event.run(), event.line) for event in found] == [("checkpoint_save", "run-7", 1)]


QUEUE = "JOBID|NAME|STATE|SUBMIT_TIME|START_TIME|END_TIME|NODES|NODELIST"


@pytest.mark.parametrize(
    ("state", "has_start", "has_end"),
    [("PENDING", False, False), ("RUNNING", True, False), ("COMPLETING", True, False), ("FAILED", True, True)],
)
def test_a_plan_is_no_fact(state: str, has_start: bool, has_end: bool) -> None:
    """A pending job's start is expected, a running one's end is its limit."""
    row = f"7|llm|{state}|2025-03-01T00:00:00|2025-03-01T01:00:00|2025-03-02T00:00:00|2|gpu-[1-2]"
    (event,) = decoded("squeue", [QUEUE, row])
    job = job_from_event(event)
    assert (job.start is not None, job.end is not None) == (has_start, has_end)
    assert job.node_list == ("gpu-[1-2]" if has_start else "")


def test_a_task_of_an_array_is_named_as_sacct_names_it() -> None:
    """Tasks that wait together are no jobs yet."""
    text = "JobId=9 ArrayJobId=7 ArrayTaskId={} JobName=llm JobState=RUNNING SubmitTime=2025-03-01T00:00:00"
    assert [job_from_event(event).job_id for event in decoded("squeue", [text.format(3)])] == ["7_3"]
    assert decoded("squeue", [text.format("4-6")]) == []
    assert decoded("squeue", [QUEUE, "7_[1-4]|llm|PENDING|2025-03-01T00:00:00|N/A|N/A|1|"]) == []


def test_jobs_of_slurmrestd_bear_numbers_within_objects() -> None:
    """Since 23.02; a state is a list since 23.11."""
    job = {
        "job_id": 7,
        "name": "llm",
        "job_state": ["RUNNING"],
        "node_count": {"set": True, "infinite": False, "number": 2},
        "nodes": "gpu-[1-2]",
        "submit_time": {"set": True, "number": 1740787200},
        "start_time": {"set": True, "number": 1740787260},
        "end_time": {"set": False, "number": 0},
    }
    (event,) = decoded("squeue", [json.dumps({"jobs": [job]})])
    found = job_from_event(event)
    assert (found.state, found.nodes, found.end) == ("RUNNING", 2, None)
    assert found.start is not None
    assert found.start.timestamp() == 1740787260


@pytest.mark.parametrize(
    "lines",
    [
        ["123|llm|RUNNING|2025-03-01T04:00:00|2025-03-01T04:05:06|2025-03-03T04:05:06|2|gpu-[017-018]"],
        [
            "   JOBID PARTITION  NAME  USER ST    TIME  NODES NODELIST(REASON)",
            "     123       gpu   llm  root  R 1:00:00 2 x",
        ],
    ],
)
def test_a_queue_in_another_layout_says_how_to_print_it(lines: list[str]) -> None:
    """It gave nothing, and said nothing."""
    errors: list[str] = []
    assert decoded("squeue", lines, errors) == []
    assert len(errors) == 1
    assert errors[0].endswith("write the table with `squeue -o '%i|%j|%T|%V|%S|%e|%D|%N'`, without -h")


def test_a_time_that_is_none_is_an_error() -> None:
    """The rest of the queue is read."""
    errors: list[str] = []
    job = "JobId={} JobName=a JobState=RUNNING SubmitTime={}"
    found = decoded("squeue", [job.format(1, "yesterday"), job.format(2, "2025-03-01T00:00:00"), ""], errors)
    assert [job_from_event(event).job_id for event in found] == ["2"]
    assert len(errors) == 1
    assert "SLURM_TIME_FORMAT" in errors[0]

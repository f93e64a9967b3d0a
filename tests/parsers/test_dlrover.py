"""DLRover's training events: both forms, spans, errors, what the launcher and its master tell."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from parsers.formats import dlrover
from parsers.formats.dlrover import DlroverParser
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event


def line(name: str, kind: str = "INSTANT", clock: str = "04:05:06.789000", **more: Any) -> str:
    """An event as text; `target`, `id` and the content may be given."""
    target, identity = more.pop("target", "Trainer"), more.pop("id", "1a2b3c4d")
    return f"[2025-03-01T{clock}] [{identity}] [{target}] [{name}] [{kind}] {json.dumps(more)}"


def decoded(*lines: str, context: Context | None = None) -> list[Event]:
    """The events of lines."""
    return list(parse(DlroverParser(context or Context(run="r")), lines))


def as_json(text: str) -> str:
    """The same event in the other form."""
    time, identity, target, name, kind = [*text.split("] [")[:4], text.split("] [")[4].partition("]")[0]]
    content = json.loads(text[text.index(" {") :])
    return json.dumps(
        {
            "event_id": identity,
            "event_time": time.removeprefix("["),
            "target": target,
            "name": name,
            "event_type": kind,
            "content": content,
        }
    )


@pytest.mark.parametrize("form", [str, as_json], ids=["text", "json"])
def test_both_forms_tell_the_same(form: Any) -> None:
    """A span's length is known from its two events."""
    begin = line("#save", "BEGIN", "04:05:00.000000", global_step=7)
    end = line("#save", "END", "04:05:12.500000", global_step=7, success=True)
    start, done = decoded(form(begin), form(end))
    assert (start.kind, start.attributes["iteration"]) == ("checkpoint_save_start", 7)
    assert (done.kind, done.attributes["duration_ms"], done.attributes["run"]) == ("checkpoint_save", 12500.0, "r")
    assert done.time == datetime(2025, 3, 1, 4, 5, 12, 500000, tzinfo=UTC)
    assert (done.source, done.line) == ("dlrover", 2)


def test_times_are_local() -> None:
    """Of the zone that the reader names, unless they bear one."""
    context = Context(zone=timezone(timedelta(hours=8)))
    local, zoned = decoded(line("#finish"), line("#finish", clock="04:05:06.789000+00:00"), context=context)
    assert local.time == datetime(2025, 2, 28, 20, 5, 6, 789000, tzinfo=UTC)
    assert zoned.time == datetime(2025, 3, 1, 4, 5, 6, 789000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("#train", "BEGIN", "training_start"),
        ("#train", "END", None),
        ("#finish", "INSTANT", "training_end"),
        ("#step", "BEGIN", None),
        ("#step", "END", "iteration"),
        ("#init#load_ckpt", "END", "checkpoint_load"),
        ("#evaluate", "END", "evaluation"),
        ("#persist_ckpt", "BEGIN", "checkpoint_save_start"),
        ("#log", "INSTANT", None),
        ("#epoch", "BEGIN", None),
        ("#start", "INSTANT", "training_phase"),
        ("#init", "BEGIN", "training_phase"),
        ("#of_a_user", "INSTANT", None),
    ],
)
def test_the_trainers_events_are_those_of_a_training_log(name: str, kind: str, expected: str | None) -> None:
    """Where they mean the same."""
    assert [event.kind for event in decoded(line(name, kind, global_step=1))] == ([expected] if expected else [])


def test_a_step_is_an_iteration_with_its_time() -> None:
    """One iteration each."""
    begin = line("#step", "BEGIN", "04:00:00.000000", global_step=9)
    (event,) = decoded(begin, line("#step", "END", "04:00:03.171300", global_step=9))
    assert event.attributes["iteration"] == 9
    assert event.attributes["iterations"] == 1
    assert event.attributes["elapsed_ms"] == 3171.3


def test_a_checkpoint_persisted_in_the_background_stalls_no_one() -> None:
    """Its length is none of the training's."""
    begin = line("#persist_ckpt", "BEGIN", "04:00:00.000000", global_step=9)
    start, done = decoded(begin, line("#persist_ckpt", "END", "04:01:00.000000", global_step=9, success=True))
    assert start.attributes["async"] is True
    assert (done.attributes["async"], done.attributes["persist_ms"]) == (True, 60000.0)
    assert "duration_ms" not in done.attributes


def test_a_span_that_fails_is_an_error_with_its_cause() -> None:
    """The first line of its error, and the words' cause."""
    error = "[Errno 28] No space left on device: '/ckpt'\n  File x"
    (event,) = decoded(line("#save", "END", global_step=9, success=False, error=error))
    assert (event.kind, event.severity, event.cause) == ("training_error", "error", "storage")
    assert event.message == "save: [Errno 28] No space left on device: '/ckpt'"
    assert event.attributes["iteration"] == 9


@pytest.mark.parametrize(
    ("stack", "error", "cause"),
    [
        (["Traceback\n", "torch.cuda.OutOfMemoryError: CUDA out of memory\n"], "OutOfMemoryError", "application"),
        (["RuntimeError: CUDA error: uncorrectable ECC error encountered\n", "\n"], "RuntimeError", "hardware"),
        (["KeyboardInterrupt\n"], "KeyboardInterrupt", "unknown"),
        ("get stack failed: x", "get", "unknown"),
        ([], "exception", "unknown"),
        (None, "exception", "unknown"),
    ],
    ids=str,
)
def test_an_exception_is_an_error_by_its_last_line(stack: Any, error: str, cause: str) -> None:
    """As a traceback ends."""
    (event,) = decoded(line("exception", target="ErrorReporter", stack=stack, pid=4711))
    assert (event.kind, event.attributes["error"], event.cause) == ("training_error", error, cause)
    assert event.attributes["pid"] == 4711


@pytest.mark.parametrize(
    ("signal", "severity"),
    [("SIGTERM", "warning"), ("SIGINT", "warning"), ("SIGSEGV", "error"), ("SIGABRT", "error"), ("SIGCHLD", None)],
)
def test_a_signal_ends_a_program_or_says_nothing(signal: str, severity: str | None) -> None:
    """A child that ended is no end of the program."""
    found = decoded(line("exit_sig", target="ErrorReporter", sig=1, sig_name=signal, pid=4711))
    assert [event.severity for event in found] == ([severity] if severity else [])


def test_the_launcher_and_its_master_tell_of_restarts_and_pods() -> None:
    """With the node that they name."""
    restart, failed = decoded(
        line("#process_restart", target="dlrover-agent", node_name="gpu-017", pod_name="p3", restart_round=2,
             errmsg={"rank 3": "exitcode: 1"}),
        line("#pod_change", target="dlrover-master", node_name="gpu-018", pod_name="p4", to_state="Failed"),
    )  # fmt: skip
    assert (restart.kind, restart.node, restart.message) == ("training_restart", "gpu-017", "rank 3: exitcode: 1")
    assert (restart.attributes["restarts"], restart.attributes["pod"]) == (2, "p3")
    assert (failed.kind, failed.node, failed.severity) == ("pod_failed", "gpu-018", "warning")
    assert decoded(line("#pod_change", target="dlrover-master", to_state="Running")) == []


def test_phases_of_the_launcher_bear_their_length() -> None:
    """A rendezvous is startup."""
    begin = line("#rendezvous", "BEGIN", "04:00:00.000000", target="dlrover-agent", round_num=1)
    _, end = decoded(begin, line("#rendezvous", "END", "04:00:30.000000", target="dlrover-agent", round_num=1))
    assert (end.kind, end.severity) == ("training_phase", "info")
    assert (end.attributes["state"], end.attributes["round"]) == ("rendezvous end", 1)
    assert end.attributes["duration_ms"] == 30000.0


def test_ends_are_paired_by_their_id_and_target() -> None:
    """Not by their name; one that never began has no length."""
    found = decoded(
        line("#save", "BEGIN", "04:00:00.000000", id="a"),
        line("#save", "BEGIN", "04:00:10.000000", id="b"),
        line("#save", "END", "04:00:15.000000", id="b"),
        line("#save", "END", "04:00:20.000000", id="a"),
        line("#save", "END", "04:00:21.000000", id="a"),
        line("#save", "END", "04:00:21.000000", id="b", target="other"),
    )
    assert [event.attributes.get("duration_ms") for event in found] == [None, None, 5000.0, 20000.0, None, None]


def test_open_spans_are_forgotten_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first."""
    monkeypatch.setattr(dlrover, "MAX_SPANS", 2)
    begun = [line("#save", "BEGIN", id=identity) for identity in "abc"]
    found = decoded(*begun, *(line("#save", "END", id=identity) for identity in "abc"))
    assert [event.attributes.get("duration_ms") for event in found[3:]] == [None, 0.0, 0.0]


def test_numbers_that_json_does_not_know_are_missing() -> None:
    """A loss may be NaN."""
    text = '[2025-03-01T04:05:06.789000] [a] [Trainer] [#step] [END] {"global_step": 3, "loss": NaN, "x": [-Infinity]}'
    assert [event.attributes["iteration"] for event in decoded(text, as_json(line("#step", "END", global_step=3)))] == [
        3,
        3,
    ]


def test_a_line_cut_short_is_told() -> None:
    """The parser stays usable."""
    parser = DlroverParser(Context())
    with pytest.raises(ParseError, match="#save"):
        list(parser.feed(line("#save", "END", global_step=7)[:-3], 1))
    assert [event.kind for event in parser.feed(line("#save", "END", global_step=7), 2)] == ["checkpoint_save"]


@pytest.mark.parametrize(
    "text",
    [
        "an ordinary line",
        "[2025-03-01T04:05:06] [a] [b] words",
        '{"event_type": "BEGIN", "name": "#save"}',
        '{"event_type": "MIDDLE", "name": "#save", "event_time": "2025-03-01T04:05:06"}',
        '{"event_type": "END", "name": 3, "event_time": "2025-03-01T04:05:06"}',
    ],
)
def test_other_lines_and_objects_tell_nothing(text: str) -> None:
    """A program's log stands around its events."""
    assert decoded(text) == []

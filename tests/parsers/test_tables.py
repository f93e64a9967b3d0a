"""Slurm's parsable tables: sacct and sacctmgr."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from parsers.formats.sacct import SacctParser
from parsers.formats.sacctmgr import SacctmgrParser
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event
from store.records.job import job_from_event
from store.records.outage import outage_from_event

HEADER = "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode"
JOB = "4711|llm-70b|NODE_FAIL|2025-03-01T00:00:00|2025-03-01T00:02:00|2025-03-03T10:00:00|64|gpu-[001-064]|0:0"
EVENTS = "NodeName|TimeStart|TimeEnd|State|Reason|User"
OUTAGE = "gpu-017|2025-03-01T04:05:06|2025-03-01T06:00:00|DOWN|Xid 79|root"


def sacct(*lines: str, context: Context | None = None) -> tuple[list[Event], list[str]]:
    """The events and errors of a table of jobs."""
    errors: list[str] = []
    parser = SacctParser(context or Context())
    return list(parse(parser, lines, lambda line, error: errors.append(f"{line}: {error}"))), errors


def sacctmgr(*lines: str) -> tuple[list[Event], list[str]]:
    """The events and errors of a table of outages."""
    errors: list[str] = []
    return list(parse(SacctmgrParser(Context()), lines, lambda line, error: errors.append(f"{line}: {error}"))), errors


def test_a_row_is_the_job_that_the_store_reads() -> None:
    """Through the event and back."""
    events, errors = sacct(HEADER, JOB)
    job = job_from_event(events[0])
    assert errors == []
    assert (job.job_id, job.run, job.state, job.nodes, job.node_list) == (
        "4711",
        "llm-70b",
        "NODE_FAIL",
        64,
        "gpu-[001-064]",
    )
    assert (job.submit, job.end) == (datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 3, 3, 10, tzinfo=UTC))
    assert (events[0].time, events[0].severity, events[0].cause) == (job.end, "error", "host")


def test_steps_are_left_out() -> None:
    """batch, extern and numbered ones, of array jobs too."""
    rows = [
        JOB.replace("4711|", f"{job}|") for job in ("4711.batch", "4711.extern", "4711.0", "4712_[1-5]", "4712_3.0")
    ]
    events, _ = sacct(HEADER, *rows)
    assert [event.attributes["job_id"] for event in events] == ["4712_[1-5]"]


@pytest.mark.parametrize("nothing", ["Unknown", "", "None", "N/A"])
def test_a_time_to_come_is_missing(nothing: str) -> None:
    """A running job's time is its start."""
    events, _ = sacct(HEADER, JOB.replace("2025-03-03T10:00:00", nothing))
    assert events[0].attributes["end"] is None
    assert events[0].time == datetime(2025, 3, 1, 0, 2, tzinfo=UTC)


def test_words_behind_a_state_are_taken_off() -> None:
    """Who cancelled it is kept."""
    events, _ = sacct(
        HEADER, JOB.replace("NODE_FAIL", "CANCELLED by 1185300516"), JOB.replace("NODE_FAIL", "CANCELLED+")
    )
    assert [event.attributes["state"] for event in events] == ["CANCELLED", "CANCELLED"]
    assert events[0].attributes["cancelled_by"] == "1185300516"


@pytest.mark.parametrize("separator", ["|", "|#"])
def test_either_separator_is_known_by_the_header(separator: str) -> None:
    """sacct --delimiter."""
    events, errors = sacct(HEADER.replace("|", separator), JOB.replace("|", separator))
    assert (len(events), errors) == (1, [])


def test_a_row_may_end_in_a_separator_though_its_header_does_not() -> None:
    """One only, and with nothing behind it."""
    events, errors = sacct(HEADER, JOB + "|", JOB + "| ", JOB + "||", JOB)
    assert [event.line for event in events] == [2, 3, 5]
    assert errors == ["4: the row has 11 fields, its header 9"]


def test_columns_may_stand_in_any_order_and_be_few() -> None:
    """Missing ones are missing; a table of `sacct -p` ends in a separator."""
    events, errors = sacct("State|JobID|", "COMPLETED|7|")
    assert errors == []
    assert events[0].attributes["run"] is None
    assert events[0].time is None


def test_lines_before_the_header_are_passed_by() -> None:
    """A prompt, a blank line; a second header in a joined file."""
    events, errors = sacct("$ sacct -P", "", HEADER, JOB, "", HEADER, JOB)
    assert ([event.line for event in events], errors) == ([4, 7], [])


def test_a_row_with_a_line_break_in_a_field_is_one_job() -> None:
    """Its line is its first."""
    broken = JOB.replace("llm-70b", "llm\n70b").split("\n")
    events, errors = sacct(HEADER, *broken, JOB)
    assert errors == []
    assert [(event.line, event.attributes["run"]) for event in events] == [(2, "llm\n70b"), (4, "llm-70b")]


def test_a_short_row_is_an_error_and_the_next_row_is_read() -> None:
    """The good job is not lost beside it."""
    events, errors = sacct(HEADER, "4710|cut", JOB, JOB)
    assert [event.line for event in events] == [3, 4]
    assert errors == ["3: the row at line 2 has 2 fields, its header 9"]


def test_a_short_row_at_the_end_is_an_error() -> None:
    """The file was cut."""
    assert sacct(HEADER, JOB, "4710|cut")[1] == ["3: the row at line 3 has 2 fields, its header 9"]


def test_a_long_row_is_an_error_and_the_next_row_is_read() -> None:
    """A separator in a name."""
    events, errors = sacct(HEADER, JOB.replace("llm-70b", "llm|70b"), JOB, "a|b", "c|d|" + JOB, JOB)
    assert [event.line for event in events] == [3, 6]
    assert errors == ["2: the row has 10 fields, its header 9", "5: the row has 12 fields, its header 9"]


def test_a_short_row_does_not_swallow_the_file() -> None:
    """Many short lines are many errors at most, and then a good row is read."""
    events, errors = sacct(HEADER, *["x"] * 200, JOB)
    assert [event.line for event in events] == [202]
    assert errors


def test_no_header_says_what_to_run() -> None:
    """sacct -n."""
    assert sacct(JOB)[1] == ["1: no header line: write the table with `sacct -P`, without -n"]
    assert sacct() == ([], [])
    assert sacct("", "  ") == ([], [])


def test_what_is_no_time_is_an_error() -> None:
    """It names the column."""
    assert sacct(HEADER, JOB.replace("2025-03-01T00:02:00", "yesterday"))[1] == [
        "2: Start is 'yesterday': sacct writes times as 2025-03-01T00:02:00 where SLURM_TIME_FORMAT is not set"
    ]


def test_times_are_in_the_contexts_zone() -> None:
    """Slurm prints local time."""
    events, _ = sacct(HEADER, JOB, context=Context(zone=ZoneInfo("Europe/Berlin")))
    assert events[0].time == datetime(2025, 3, 3, 9, tzinfo=UTC)


def test_an_outage_is_what_the_store_reads() -> None:
    """Through the event and back, its cause by the reason table."""
    events, errors = sacctmgr(EVENTS, OUTAGE)
    outage = outage_from_event(events[0])
    assert errors == []
    assert (outage.node, outage.state, outage.reason, outage.user) == ("gpu-017", "DOWN", "Xid 79", "root")
    assert (outage.start, outage.end) == (
        datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC),
        datetime(2025, 3, 1, 6, tzinfo=UTC),
    )
    assert (outage.planned, outage.cause) == (False, "hardware")


def test_an_outage_that_lasts_has_no_end() -> None:
    """Unknown, or nothing at all."""
    events, _ = sacctmgr(
        EVENTS, OUTAGE.replace("2025-03-01T06:00:00", "Unknown"), OUTAGE.replace("2025-03-01T06:00:00", "")
    )
    assert [event.attributes["end"] for event in events] == [None, None]


def test_a_reason_may_hold_the_separator() -> None:
    """People write what they like."""
    events, errors = sacctmgr(EVENTS, OUTAGE.replace("Xid 79", "fan | PSU | swap"))
    assert (events[0].attributes["reason"], errors) == ("fan | PSU | swap", [])


def test_the_clusters_own_events_are_left_out() -> None:
    """They name no node."""
    assert sacctmgr(f"Cluster|{EVENTS}", "prod||2025-03-01T00:00:00|Unknown||Cluster Registered TRES|") == ([], [])


@pytest.mark.parametrize(("start", "why"), [("", "has no start"), ("now", "TimeStart is 'now'")])
def test_an_outage_without_a_start_is_an_error(start: str, why: str) -> None:
    """It names the node or the column."""
    events, errors = sacctmgr(EVENTS, OUTAGE.replace("2025-03-01T04:05:06", start), OUTAGE)
    assert len(events) == 1
    assert why in errors[0]


def test_other_names_of_the_columns_are_known() -> None:
    """sacctmgr --format=NodeName,Start,End."""
    events, _ = sacctmgr("NodeName|Start|End", "gpu-017|2025-03-01T04:05:06|Unknown")
    assert events[0].attributes["start"] == "2025-03-01T04:05:06.000000Z"


def test_a_table_read_by_the_wrong_parser_has_no_header() -> None:
    """Jobs are no outages."""
    with pytest.raises(ParseError, match="sacctmgr show event -P"):
        parser = SacctmgrParser(Context())
        list(parser.feed(HEADER, 1))
        list(parser.flush())

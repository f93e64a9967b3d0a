"""Times without a year, a zone or an epoch."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.text.parser import Context
from parsers.text.stamp import Stamps, month_of

BERLIN = ZoneInfo("Europe/Berlin")
FIRST, LAST = (datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (1990, 2030))


def test_a_month_ahead_of_the_newest_moment_is_last_years() -> None:
    """A file of January holds lines of December."""
    stamps = Stamps(Context(until=datetime(2026, 1, 5, tzinfo=UTC)))
    assert stamps.yearless("Dec", "31", "23:59:59") == datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert stamps.yearless("Jan", "1", "00:00:01.5") == datetime(2026, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


def test_a_given_year_turns_at_new_year() -> None:
    """December then January: the next year; a line out of order goes back."""
    stamps = Stamps(Context(year=2025))
    years = [stamps.yearless(m, "10", "12:00:00") for m in ("Nov", "Dec", "Jan", "Dec", "Jan", "Mar")]
    assert [moment.year for moment in years if moment] == [2025, 2025, 2026, 2025, 2026, 2026]


def test_a_given_year_does_not_run_ahead_of_the_newest_moment() -> None:
    """--year of today for a log that began last year."""
    stamps = Stamps(Context(year=2026, until=datetime(2026, 2, 1, tzinfo=UTC)))
    moment = stamps.yearless("Dec", "30", "12:00:00")
    assert moment is not None
    assert moment.year == 2025


def test_a_live_log_runs_on_past_the_moment_it_was_opened() -> None:
    """A sidecar that runs for months: days later, over new year, and in the autumn after."""
    opened = datetime(2026, 11, 1, tzinfo=UTC)
    stamps = Stamps(Context(year=2026, until=opened))
    days = [
        ("Oct", "31"),
        ("Nov", "1"),
        ("Nov", "20"),
        ("Dec", "31"),
        ("Jan", "1"),
        ("Mar", "5"),
        ("Aug", "1"),
        ("Dec", "2"),
    ]
    moments = [stamps.yearless(month, day, "12:00:00") for month, day in days]
    assert [moment.year for moment in moments if moment] == [2026, 2026, 2026, 2026, 2027, 2027, 2027, 2027]


def test_a_live_log_opened_on_new_years_eve_goes_on() -> None:
    """The first line after midnight is not a year old."""
    stamps = Stamps(Context(until=datetime(2026, 12, 31, 23, 0, tzinfo=UTC)))
    stamps.yearless("Dec", "31", "22:59:00")
    assert stamps.yearless("Jan", "1", "00:00:01") == datetime(2027, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_a_log_with_long_gaps_keeps_its_year() -> None:
    """Two faults, eight months apart."""
    stamps = Stamps(Context(until=datetime(2026, 11, 20, tzinfo=UTC)))
    moments = [stamps.yearless(month, "10", "12:00:00") for month in ("Dec", "Feb", "Oct")]
    assert [moment.year for moment in moments if moment] == [2025, 2026, 2026]


def test_a_slightly_fast_clock_does_not_cost_a_year() -> None:
    """A line some minutes ahead of its file's time is of today."""
    stamps = Stamps(Context(until=datetime(2026, 11, 20, 23, 0, tzinfo=UTC)))
    assert stamps.yearless("Nov", "20", "23:30:00") == datetime(2026, 11, 20, 23, 30, tzinfo=UTC)


def test_without_year_and_newest_moment_there_is_no_time() -> None:
    """Missing, not guessed."""
    stamps = Stamps(Context())
    assert stamps.yearless("Nov", "20", "23:30:00") is None
    assert not stamps.knows_year()


@pytest.mark.parametrize(
    ("month", "day", "clock"), [("kwi", "15", "07:56:59"), ("Feb", "30", "1:00:00"), ("Nov", "1", "x")]
)
def test_what_is_no_date_gives_none(month: str, day: str, clock: str) -> None:
    """A month in another language, a day that is not there, no clock."""
    assert Stamps(Context(year=2026)).yearless(month, day, clock) is None


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "Jan janv. ene gen January"),
        (2, "Feb févr. fev"),
        (3, "Mar Mär mrt mars Mrz"),
        (5, "May Mai mei mag"),
        (6, "Jun juin giu"),
        (7, "Jul juil. lug"),
        (8, "Aug août ago"),
        (9, "Sep Sept sept. set"),
        (10, "Oct Okt ott out 10月"),
        (12, "Dec Dez déc. dic"),
    ],
)
def test_a_month_is_known_in_the_languages_that_agree(number: int, words: str) -> None:
    """A tool writes it as its caller's locale has it: unknown, the line took the time of the one before it."""
    assert {month_of(word) for word in words.split()} == {number}


@pytest.mark.parametrize("word", ["kwi", "lis", "marras", "Xyz", "123", "Ma", "", "月"])
def test_a_month_that_may_be_another_one_is_none(word: str) -> None:
    """Polish `lis` is November, the Croats' October; Finnish `marras` only begins as March does."""
    assert month_of(word) is None


def test_29_february_is_found_in_its_leap_year() -> None:
    """A file touched in 2025 with a line of 29 February 2024."""
    stamps = Stamps(Context(until=datetime(2025, 1, 5, tzinfo=UTC)))
    assert stamps.yearless("Feb", "29", "12:00:00") == datetime(2024, 2, 29, 12, tzinfo=UTC)


def test_times_without_a_zone_are_in_the_contexts() -> None:
    """Local time of the host that wrote them; a zone of their own wins."""
    stamps = Stamps(Context(year=2026, zone=BERLIN))
    assert stamps.yearless("Jul", "1", "12:00:00") == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert stamps.dated("Jan", "1", "12:00:00", "2026") == datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert stamps.iso("2026-07-01T12:00:00") == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert stamps.iso("2026-07-01T12:00:00+0000") == datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert stamps.iso("2026-07-01T12:00:00.123456789Z") == datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)


def test_seconds_since_boot_need_a_boot_time() -> None:
    """None without one, and for a number that is no uptime."""
    boot = datetime(2026, 11, 20, 21, 0, tzinfo=UTC)
    assert Stamps(Context(boot_time=boot)).since_boot(90.5) == boot + timedelta(seconds=90.5)
    assert Stamps(Context()).since_boot(90.5) is None
    assert Stamps(Context(boot_time=boot)).since_boot(1e18) is None


def test_a_time_without_a_year_goes_to_the_one_nearest_a_time_seen() -> None:
    """Forwards and backwards over new year."""
    stamps = Stamps(Context())
    seen = datetime(2025, 12, 31, 23, 0, tzinfo=UTC)
    assert stamps.nearest(1, "01", "00:10:00.5", seen) == datetime(2026, 1, 1, 0, 10, 0, 500_000, tzinfo=UTC)
    assert stamps.nearest(12, "30", "00:10:00", seen) == datetime(2025, 12, 30, 0, 10, tzinfo=UTC)
    assert stamps.nearest(2, "31", "00:10:00", seen) is None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_is_a_time_or_none(seconds: float) -> None:
    """A broken number never raises."""
    moment = Stamps(Context()).since_epoch(seconds)
    assert moment is None or moment.tzinfo is UTC


@given(st.text(max_size=40))
def test_any_text_is_an_iso_time_or_none(text: str) -> None:
    """Nor does a broken text."""
    moment = Stamps(Context()).iso(text)
    assert moment is None or moment.tzinfo is UTC


@given(
    moments=st.lists(st.datetimes(FIRST, LAST), min_size=1, max_size=4),
    zone=st.sampled_from([UTC, BERLIN, ZoneInfo("Asia/Kolkata")]),
)
def test_a_time_of_a_second_read_before_is_its_own(moments: list[datetime], zone: tzinfo) -> None:
    """Each with and without its fraction, one after another: what is kept of the last one changes none."""
    stamps = Stamps(Context(zone=zone))
    for moment in [each for one in moments for each in (one, one.replace(microsecond=0), one)]:
        clock = f"{moment:%H:%M:%S}" + (f",{moment.microsecond:06d}" if moment.microsecond else "")
        found = stamps.dated(f"{moment:%b}", str(moment.day), clock, str(moment.year))
        assert found == moment.replace(tzinfo=zone).astimezone(UTC)

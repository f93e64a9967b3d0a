"""How often a lost link stops the job on its host, as the store tells."""

from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, outage

from predictor.history.arrays import to_ms
from predictor.links.link_log import known_links
from predictor.links.scoring import score_links
from predictor.links.stoppages import LEAST_DAYS, MOST_OF_HOST, stop_share
from predictor.links.subjects import link_population
from store.database.connections import writing
from store.events.append import append_events, append_jobs
from store.records.event import Event
from store.records.job import Job

from .test_links import chronic, flap, put

AT = day(50)


def job(hosts: str, begin_d: float, end_d: float | None, state: str = "FAILED") -> Job:
    """An attempt on some hosts."""
    end = None if end_d is None else day(end_d)
    return Job(f"{hosts}-{begin_d}", "run", state, None, day(begin_d), end, 1, hosts)


def share(engine: sa.Engine, events: Sequence[Event], jobs: Sequence[Job], **more: object) -> float | None:
    """The share that a store of these tells."""
    put(engine, list(events), **more)  # type: ignore[arg-type]
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
    with engine.connect() as connection:
        return stop_share(connection, link_population(connection, to_ms(AT)), known_links(connection).cabling, AT)


def test_it_counts_days_on_which_a_host_lost_a_link_under_a_job(any_engine: sa.Engine) -> None:
    """Five losses in a day are one; the job that failed with one of them counts, and one that ran on does not."""
    hosts = ("gpu-0", "gpu-1", "gpu-2")
    lost = [flap(host, at + 0.4 + n / 50) for host in hosts for at in (1, 2, 3, 4) for n in range(5)]
    jobs = [job("gpu-[0-2]", at, at + 0.4 + 0.003, "FAILED" if at == 2 else "COMPLETED") for at in (1, 2, 3, 4)]
    jobs += [job("gpu-[0-2]", at + 0.41, at + 0.9, "COMPLETED") for at in (1, 2, 3, 4)]
    assert share(any_engine, lost, jobs) == (3 + 1) / (12 + 2)


@pytest.mark.parametrize(
    ("minutes", "state", "stops"),
    [(9, "FAILED", 9), (11, "FAILED", 0), (-4, "NODE_FAIL", 9), (9, "CANCELLED", 0), (9, "COMPLETED", 0)],
)
def test_a_job_fails_with_a_loss_shortly_before_its_end(
    engine: sa.Engine, minutes: float, state: str, stops: int
) -> None:
    """Ten minutes before, five after (FIELD B2); a job that somebody ended is none."""
    hosts = ("gpu-0", "gpu-1", "gpu-2")
    ends = {at: at + 0.4 + minutes / 1440 for at in (1, 2, 3)}
    lost = [flap(host, at + 0.4) for host in hosts for at in ends]
    assert share(engine, lost, [job("gpu-[0-2]", at, end, state) for at, end in ends.items()]) == (stops + 1) / 11


def test_what_is_no_fault_of_the_link_or_came_later_counts_for_nothing(engine: sa.Engine) -> None:
    """Losses of a host that was out, between switches, under no job, and after the moment."""
    hosts = ("gpu-0", "gpu-1", "gpu-2")
    lost = [flap(host, at + 0.4) for host in hosts for at in (1, 2, 3)]
    aside = [flap("gpu-3", 5.4), flap("leaf-0", 6.4), flap("gpu-1", 7.4), *(flap(host, 55.4) for host in hosts)]
    jobs = [job("gpu-[0-3]", at, at + 0.9, "COMPLETED") for at in (1, 2, 3, 5)]
    jobs += [job("gpu-[0-3]", 55, None, "RUNNING"), job("gpu-[0-", 1, 2)]
    assert share(engine, [*lost, *aside], jobs, outages=[outage("gpu-3", 5.39)]) == 1 / 11


def test_too_little_tells_nothing(engine: sa.Engine) -> None:
    """Days of two hosts, or too few days; no jobs at all."""
    assert share(engine, [flap(host, at + 0.4) for host in ("gpu-0", "gpu-1") for at in range(1, 30)], []) is None
    with writing(engine).begin() as connection:
        append_jobs(connection, [job("gpu-[0-3]", 0.5, 40, "COMPLETED")])
    with engine.connect() as connection:
        population, cabling = link_population(connection, to_ms(AT)), known_links(connection).cabling
        assert stop_share(connection, population, cabling, AT) is None
        assert stop_share(connection, population, cabling, day(1)) is None
    assert 2 * MOST_OF_HOST > LEAST_DAYS


def test_a_scoring_tells_it_where_trees_serve_and_not_where_a_count_does(engine: sa.Engine) -> None:
    """The host is named; between two switches there is none."""
    chronic(engine)
    others = [flap(f"gpu-{i}", at + i / 10) for i in (0, 2, 3) for at in range(3, 58, 4)]
    with writing(engine).begin() as connection:
        append_events(connection, sorted(others, key=lambda event: event.time or day(0)), RECEIVED)
        append_jobs(connection, [job("gpu-[0-3]", at, at + 1 / 1440) for at in range(2, 58, 2)])
        append_jobs(connection, [job("gpu-[0-3]", 1, None, "RUNNING")])
    early = score_links(engine, day(17.5)).scores
    assert {one.model.rpartition("-")[0] for one in early} == {"links-history-24h"}
    assert {one.stop_risk for one in early} == {None}
    by_link = {one.link: one for one in early}
    assert (by_link["leaf-0/2"].node, by_link["leaf-0/33"].node) == ("gpu-1", None)
    worst = by_link["leaf-0/2"]
    assert worst.own_risk is not None
    assert 0.0 < worst.own_risk < worst.score
    late = score_links(engine, day(58.2))
    assert late.why.startswith("trees")
    with engine.connect() as connection:
        told = stop_share(
            connection, link_population(connection, to_ms(day(58.2))), known_links(connection).cabling, day(58.2)
        )
    assert told is not None
    assert [one.stop_risk for one in late.scores] == [
        None if one.own_risk is None else one.own_risk * told for one in late.scores
    ]

"""The keeper of a lease, by a clock that is moved by hand: when it believes, and for how long."""

from sqlalchemy.exc import OperationalError

from api.loops.runner import MARGIN_S, RENEW_S, TTL_S, LeaseKeeper

FAIL_OVER_S = 5.0


class Lease:
    """A lease in a database whose clock runs with ours; other holders take it by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.until = 0.0
        self.holder = ""
        self.is_away = False

    def keeper(self, name: str) -> LeaseKeeper:
        """A server's keeper."""

        def ask() -> bool:
            if self.is_away:
                raise OperationalError("SELECT", {}, Exception("gone"))
            if self.holder not in (name, "") and self.now < self.until:
                return False
            self.holder, self.until = name, self.now + TTL_S
            return True

        def give_back() -> None:
            if self.holder == name:
                self.holder = ""

        return LeaseKeeper(ask, give_back, lambda: self.now)


def test_a_dead_holder_is_followed_within_five_seconds() -> None:
    """By the figures: its lease, one more round of asking, and half a second to spare for the database."""
    assert TTL_S + RENEW_S + 0.5 <= FAIL_OVER_S
    lease = Lease()
    dead, heir = lease.keeper("dead"), lease.keeper("heir")
    dead.renew()
    died = lease.now
    while not heir.holds():
        heir.renew()
        lease.now += RENEW_S / 10
    assert lease.now - died <= TTL_S + RENEW_S


def test_nobody_believes_when_another_may_hold_it() -> None:
    """The belief ends before the lease, by the margin; an heir's begins after it."""
    lease = Lease()
    keeper, heir = lease.keeper("a"), lease.keeper("b")
    keeper.renew()
    lease.now += TTL_S - MARGIN_S - 0.001
    assert keeper.holds()
    lease.now += 0.001
    assert not keeper.holds()
    heir.renew()
    assert not heir.holds()
    lease.now += MARGIN_S
    heir.renew()
    assert heir.holds()


def test_one_that_was_stopped_wakes_as_nobody() -> None:
    """Ten seconds in which another took over: the first thing it asks is answered no, before any database is."""
    lease = Lease()
    sleeper, heir = lease.keeper("sleeper"), lease.keeper("heir")
    sleeper.renew()
    lease.now += 10
    heir.renew()
    assert not sleeper.holds()
    sleeper.renew()
    assert (sleeper.holds(), heir.holds()) == (False, True)


def test_an_answer_that_came_late_is_not_believed() -> None:
    """The belief counts from the question."""
    lease = Lease()

    def slow() -> bool:
        lease.now += TTL_S
        return True

    keeper = LeaseKeeper(slow, lambda: None, lambda: lease.now)
    keeper.renew()
    assert not keeper.holds()


def test_without_a_database_the_belief_lasts_its_time_and_no_longer() -> None:
    """A short break of the network changes nothing."""
    lease = Lease()
    keeper = lease.keeper("a")
    keeper.renew()
    lease.is_away = True
    lease.now += RENEW_S
    keeper.renew()
    assert keeper.holds()
    lease.now += TTL_S
    keeper.renew()
    assert not keeper.holds()
    lease.is_away = False
    keeper.renew()
    assert keeper.holds()


def test_who_gives_it_back_believes_no_more_and_another_has_it_at_once() -> None:
    """A restart costs no time."""
    lease = Lease()
    keeper, heir = lease.keeper("a"), lease.keeper("b")
    keeper.renew()
    keeper.stop()
    assert not keeper.holds()
    heir.renew()
    assert heir.holds()


def test_whoever_waits_is_told_at_once_and_at_the_end() -> None:
    """No loop sleeps through its turn, and none keeps the server from ending."""
    lease = Lease()
    keeper, other = lease.keeper("a"), lease.keeper("b")
    other.renew()
    keeper.renew()
    assert not keeper.wait(0.0)
    lease.now += TTL_S
    keeper.renew()
    assert keeper.wait(600.0)
    lease.now += TTL_S
    assert not keeper.wait(0.0)
    assert not keeper._held.is_set(), "or whoever waits would spin"
    keeper.interrupt()
    assert not keeper.wait(600.0)


def test_the_thread_takes_the_lease_and_gives_it_back() -> None:
    """From start to stop."""
    lease = Lease()
    keeper = lease.keeper("a")
    keeper.start()
    assert keeper.wait(600.0)
    keeper.stop()
    assert lease.holder == ""

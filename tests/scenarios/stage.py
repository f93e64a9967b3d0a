"""The scene of one scenario before anything breaks: a site, its jobs, the noise of every day; and the truth's form."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from scenarios import fabric, lines, program
from scenarios.archive import Archive, Job, Outage
from scenarios.site import GPUS, RAILS, Site

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True)
class Truth:
    """What broke. A verdict is right where its class is one of these, and its node or one of its names fits.

    `node` is None for what is of no node; `names` then says what it is called; `nodes`, where the group has several
    names or none, whom it hit: a verdict of the class whose nodes are mostly these is right too. `nobody`: no part of
    the machine may be accused. `second` is a second fault that happened beside it.
    """

    classes: frozenset[str]
    node: str | None = None
    names: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    nobody: bool = False
    second: "Truth | None" = None


@dataclass(frozen=True)
class Scenario:
    """One composed case: what an operator collected, how he asks, and what was true."""

    kind: str
    seed: int
    archive: Archive
    truth: Truth
    run: str | None  # the run that the question names


class Stage:
    """A site and its jobs at rest; a kind of scenario breaks something on it, at second 0."""

    def __init__(self, kind: str, seed: int, size: int = 1024, naming: int | None = None) -> None:
        """Draw the site, the jobs and how the case will be asked about. `naming` calls everything by other names."""
        self.rng = random.Random(f"{kind} {seed}")
        self.seed = seed
        self.site = Site(size, seed % 5 if naming is None else naming)
        day = self.rng.randint(5, 26)
        moment = datetime(
            2026, self.rng.randint(2, 10), day, self.rng.randint(0, 23), self.rng.randint(0, 59), tzinfo=UTC
        )
        self.archive = Archive(self.site, moment + timedelta(seconds=self.rng.randint(0, 59), microseconds=437_000))
        self.archive.leaf_column = seed % 2 == 1
        # Asked with the run's name, without it after the end, or while the job still hangs.
        self.asked = ("named", "ended", "running", "ended")[seed % 4]
        share = self.rng.choice((8, 8, 4, 2)) if size >= 512 else self.rng.choice((4, 2))
        count = size // share
        first = self.rng.randrange(0, (size - count) // 8 + 1) * 8
        places = list(range(first, first + count))
        name = self.rng.choice(("llm-70b", "moe-8x22b", "pretrain_gpt3", "vlm-large"))
        self.job = Job(self.rng.randint(4000, 90_000), name, places, "RUNNING", -self.rng.uniform(3, 20) * HOUR, None)
        self.reserved: set[int] = set()

    # --- helpers of the kinds

    def victim(self) -> int:
        """A node of the job, kept free of noise."""
        place = self.rng.choice([place for place in self.job.places if place not in self.reserved])
        self.reserved.add(place)
        return place

    def ends(self, after_s: float, state: str = "FAILED", exit_code: str = "1:0") -> None:
        """How the job ended; where the case is asked while it hangs it has not."""
        self.job.state, self.job.end_s, self.job.exit = state, after_s, exit_code
        if self.asked == "running":
            self.job.state, self.job.end_s, self.job.exit = "RUNNING", None, "0:0"

    def goes_on(self) -> None:
        """The job runs through it."""
        self.job.state, self.job.end_s = "RUNNING", None

    def program_until(self, at: float, steps: int = 20) -> None:
        """The training log up to its last iteration before a time."""
        program.begin(self.archive, self.job, steps, at)

    def broken_rank(self, place: int, gpu: int, error: str, after_s: float = 2.0) -> None:
        """A rank that dies of its GPU, and the job's end by the launcher."""
        self.program_until(0.0)
        program.raised(self.archive, self.job, after_s, program.rank_of(self.job, place, gpu), error)
        if self.asked != "running":
            program.root_cause(self.archive, self.job, after_s + 20, place, gpu)
        self.ends(after_s + self.rng.uniform(25, 90))

    def node_lost(self, place: int, back_s: float | None = None, slurm_s: float | None = None) -> None:
        """A node that is gone: links, silence, what Slurm writes; perhaps it starts again."""
        self.nodes_lost([place], back_s, slurm_s)

    def nodes_lost(self, places: list[int], back_s: float | None = None, slurm_s: float | None = None) -> None:
        """Nodes that are gone at once."""
        fabric.nodes_lost(self.archive, 0.4, places, self.rng)
        noticed = self.rng.uniform(60, 290) if slurm_s is None else slurm_s
        for place in places:
            self.archive.silence(place, 0.3)
            self.archive.outages.append(
                Outage(place, noticed + self.rng.uniform(0, 2), None if back_s is None else back_s + 120, "DOWN*",
                       "Not responding", "slurm(64030)")
            )  # fmt: skip
        if back_s is not None:
            for place in places:
                driver = self.archive.drivers.get(place) or self.site.driver(place)
                self.archive.says(place, lines.boot(driver), back_s + self.rng.uniform(0, 20))
            fabric.nodes_back(self.archive, back_s + 40, places, self.rng)

    def neighbours_complain(self, places: list[int], rail: int | None = None, after_s: float = 12.0) -> None:
        """What the job prints when some of its nodes cannot be reached."""
        self.program_until(0.0)
        inside = [place for place in places if place in self.job.places]
        program.complaints(self.archive, self.job, after_s, inside, rail, self.rng)

    def seed_is_odd(self) -> bool:
        """Whether the case bears an odd number: a coin that shows the same side each time."""
        return self.seed % 2 == 1

    def is_odd(self) -> bool:
        """A coin."""
        return self.rng.random() < 0.5

    # --- noise

    def finish(self) -> None:
        """The other jobs and the noise of every day, before and after."""
        rng, archive = self.rng, self.archive
        fabric.greet(archive, -3 * DAY)
        self._other_jobs()
        free = [place for place in range(self.site.size) if place not in self.reserved]
        for _ in range(rng.randint(3, 8)):
            self._cured_flap(
                rng.choice(free), rng.choice((rng.uniform(-2 * DAY, -600), rng.uniform(-600, -5), rng.uniform(3, 400)))
            )
        for place in rng.sample(free, max(4, self.site.size // 100)):
            at = rng.uniform(-2 * DAY, 500)
            archive.say(place, at, lines.corrected_memory(rng))
        for _ in range(rng.randint(2, 5)):
            self._repaired_gpu(rng.choice(free), rng.uniform(-3 * DAY, -30 * HOUR))
        for _ in range(rng.randint(1, 4)):
            place, at = rng.choice(free), rng.uniform(-2 * DAY, -2 * HOUR)
            archive.outages.append(Outage(place, at, None, "DRAIN", rng.choice(_DRAINS), "admin(1001)"))
        for _ in range(rng.randint(2, 4)):
            self._chatter(rng.choice(free))
        for _ in range(rng.randint(1, 4)):
            place, at = rng.choice(free), rng.uniform(-DAY, 300)
            archive.say(place, at, lines.nfs_silent("10.0.0.5"))
            archive.say(place, at + rng.uniform(4, 25), lines.nfs_back("10.0.0.5"))
        for _ in range(rng.randint(1, 4)):
            self._users_xid(rng.choice([place for place in free if place not in self.job.places] or free))

    def _other_jobs(self) -> None:
        rng, inside = self.rng, set(self.job.places)
        free = [place for place in range(self.site.size) if place not in inside]
        self.archive.jobs.append(self.job)
        at, number = 0, self.job.number + 3
        while at + 4 <= len(free) and number < self.job.number + 12:
            count = rng.choice((1, 2, 4, 4))
            done = rng.random() < 0.6
            start = -rng.uniform(1, 30) * HOUR
            end = rng.uniform(start + 600, 300) if done else None
            self.archive.jobs.append(
                Job(number, f"job{number}", free[at : at + count], "COMPLETED" if done else "RUNNING", start, end)
            )
            at, number = at + rng.choice((4, 8, 8)), number + 1

    def _cured_flap(self, place: int, at: float) -> None:
        rail = self.rng.randrange(RAILS)
        fabric.port_lost(self.archive, at, place, rail)
        fabric.port_back(self.archive, at + self.rng.uniform(2, 8), place, rail)

    def _repaired_gpu(self, place: int, at: float) -> None:
        pci = self.site.gpu_pci(self.rng.randrange(GPUS))
        found = self.rng.choice((lines.off_the_bus, lines.uncorrectable_memory, lines.nvlink_fatal))(pci, self.rng)
        self.archive.says(place, found, at)
        self.archive.outages.append(
            Outage(place, at + 60, at + self.rng.uniform(4, 20) * HOUR, "DRAIN", "Xid", "root(0)")
        )
        self.archive.says(place, lines.boot(self.site.driver(place)), at + 3 * HOUR)

    def _chatter(self, place: int) -> None:
        pci = self.site.gpu_pci(self.rng.randrange(GPUS))
        for _ in range(self.rng.randint(5, 20)):
            self.archive.says(place, lines.pcie_before(pci), self.rng.uniform(-2 * DAY, 1800))

    def _users_xid(self, place: int) -> None:
        pci, at = self.site.gpu_pci(self.rng.randrange(GPUS)), self.rng.uniform(-DAY, 200)
        pid = self.rng.randint(2000, 99_999)
        self.archive.say(place, at, lines.mmu_fault(pci, self.rng, pid))
        self.archive.say(place, at + 0.2, f"NVRM: Xid (PCI:{pci}): 43, pid={pid}, name=python3, Ch 00000008")


_DRAINS = ("replace DIMM B2", "RMA 44-1207 GPU 3", "bad fan", "reserved for burn-in", "awaiting HCA")

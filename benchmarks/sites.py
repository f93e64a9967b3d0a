"""Both sites of the installation pages, made from nothing by the pages' own commands, until a fault took a node out.

Real PostgreSQL, Slurm, Kubernetes API server, Prometheus, Alertmanager and NATS, as the tests of the pages run them.
The schedulers themselves run before the first command, as at a site. A person who reads takes no time here, and
approves a hint at once.
"""

from collections.abc import Iterator
from pathlib import Path

from cluster_site import cluster_site
from installed_site import InstalledSite
from real.kubernetes import kubernetes
from real.postgres import postgres
from real.slurm import slurm
from slurm_site import slurm_site

from benchmarks.result import Result, Verdict

WHAT = "first command of its installation page until the first fault is shown"
BUDGET, LIMIT_S = "< 15 min", 900.0


def measure(folder: Path) -> Iterator[Result]:
    """A row a site; its note has the seconds from the fault on, and those of each step of the page."""
    for name in ("slurm", "kubernetes"):
        (folder / name).mkdir()
    with postgres() as server:
        with (
            slurm("gpu[001-004]") as controller,
            slurm_site(folder / "slurm", server, controller, installs=True) as site,
        ):
            yield _row("Slurm", site)
        with kubernetes() as cluster, cluster_site(folder / "kubernetes", server, cluster) as site:
            yield _row("Kubernetes", site)


def _row(name: str, site: InstalledSite) -> Result:
    """Go through the page, have a second fault behind NATS, and tell of it."""
    site.walk()
    site.fault_behind_nats()
    fault, shown, out = (site.moments[each] for each in ("fault", "shown", "out"))
    steps = ", ".join(f"{step} {taken:.1f} s" for step, taken in site.step_s.items())
    note = (
        f"fault to shown {shown - fault:.1f} s, to a node out of service {out - fault:.1f} s, approved at once; {steps}"
    )
    verdict: Verdict = "met" if shown < LIMIT_S else "not met"
    return Result(f"{name} site: {WHAT}", BUDGET, f"{shown:.1f} s", "-", None, verdict, note)

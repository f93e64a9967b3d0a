"""Changes of a scenario that are no matter of what broke: its answer must stay."""

import random
from collections.abc import Callable

from scenarios import fabric
from scenarios.archive import Outage
from scenarios.site import RAILS
from scenarios.stage import Scenario

Change = Callable[[Scenario, random.Random], None]


def doubled(scenario: Scenario, rng: random.Random) -> None:
    """Every line of the kernels twice, as two shippers of one host send it."""
    for place, messages in scenario.archive.kernel.items():
        scenario.archive.kernel[place] = [message for message in messages for _ in range(2)]
    del rng


def more_flaps(scenario: Scenario, rng: random.Random) -> None:
    """Ten links of hosts that nothing else is said of are down for some seconds, before and after."""
    archive, quiet = scenario.archive, _quiet(scenario)
    for place in rng.sample(quiet, 10):
        at, rail = rng.uniform(-1200.0, 400.0), rng.randrange(RAILS)
        fabric.port_lost(archive, at, place, rail)
        fabric.port_back(archive, at + rng.uniform(2.0, 8.0), place, rail)


def rack_drained(scenario: Scenario, rng: random.Random) -> None:
    """An admin drained a rack an hour ago, and took its power away a quarter of an hour ago."""
    archive, busy = scenario.archive, set(scenario.archive.jobs[0].places)
    node = scenario.truth.node
    if node is not None:
        busy.add(archive.site.place_of[node])
    places = rng.choice([rack for rack in archive.site.racks() if not busy & set(rack)])
    for place in places:
        archive.outages.append(Outage(place, -3600.0, None, "DRAIN", "planned maintenance: cold plates", "admin(1001)"))
    fabric.nodes_lost(archive, -900.0, places, rng, spread_s=20.0)


def _quiet(scenario: Scenario) -> list[int]:
    """Nodes that neither speak nor are spoken of, outside of the job."""
    archive = scenario.archive
    busy = {place for place, messages in archive.kernel.items() if messages} | set(archive.jobs[0].places)
    busy |= {outage.place for outage in archive.outages}
    told = "\n".join(text for _, _, text in archive.fabric)
    return [
        place for place in range(archive.site.size) if place not in busy and f"{archive.site.nodes[place]} " not in told
    ]


CHANGES: dict[str, Change] = {"doubled": doubled, "more_flaps": more_flaps, "rack_drained": rack_drained}

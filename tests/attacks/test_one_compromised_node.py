"""Who has one node's token, is root on it and writes its logs can at worst get that node held.

Two sites live the same life; one of them has an attacker. ATTACK_STEPS=10000 plays the long form.
"""

import os
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from real.programs import wait_for

from predictor.live.scoring import score_nodes

from .attacker import Attacker
from .guarded_site import GuardedSite, guarded_site

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]
STEPS = int(os.environ.get("ATTACK_STEPS", "400"))
SEED = int(os.environ.get("ATTACK_SEED", "17"))
NODES = "gpu-[000-031]"
OWN = "gpu-001"
STRUCK = ("gpu-002", "gpu-005", "gpu-020")
# Of the events of honest nodes, known to the attacker beforehand: nobody could know more.
IDENTS = tuple(f"honest-{number}" for number in range(6))


def play(site: GuardedSite, steps: int, chance: random.Random) -> Counter[int]:
    """So many requests of the attacker; how often each status was the answer."""
    published = httpx.get(f"{site.server.url}/openapi.json").json()["paths"]
    paths = [(method.upper(), path) for path, item in published.items() for method in item]
    hints = [hint["id"] for hint in site.get("/hints?limit=1000")["items"]]
    attacker = Attacker(chance, OWN, [node for node in site.nodes if node != OWN], (*IDENTS, *hints), paths)
    found: Counter[int] = Counter()
    with site.client(OWN) as client:
        for _ in range(steps):
            attack = attacker.step()
            answer = client.request(attack.method, attack.path, content=attack.body, headers=attack.headers)
            found[answer.status_code] += 1
            assert answer.status_code < 500 or answer.status_code == 503, (attack, answer.text)
    return found


def settle(site: GuardedSite) -> None:
    """Wait until nothing waits to become an incident, and every loop that makes and carries out hints turned again."""
    before = turns(site)
    wait_for("every loop turned", lambda: all(turns(site)[name] > count + 2 for name, count in before.items()))


def turns(site: GuardedSite) -> dict[str, float]:
    """How many turns each loop of hints has begun."""
    lines = httpx.get(f"{site.server.url}/metrics").text.splitlines()
    start = 'foreshock_loop_turns_total{loop="'
    found = {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith(start)}
    return {name: count for name, count in found.items() if name in ("policy", "incidents", "scheduler-slurm")}


def test_an_attacker_on_one_node_decides_nothing_about_another(tmp_path: Path) -> None:
    """No other node is held, released, hidden or scored otherwise than where nobody attacks."""
    chance = random.Random(SEED)
    with guarded_site(tmp_path / "attacked", NODES) as attacked, guarded_site(tmp_path / "quiet", NODES) as quiet:
        for site in (attacked, quiet):
            site.cluster.run("scontrol", "update", "nodename=gpu-003", "state=drain", "reason=fan")
            site.fault("gpu-002", IDENTS[0])
            site.until_drained("gpu-002")
        answers = play(attacked, STEPS // 2, chance)
        for site in (attacked, quiet):
            site.fault("gpu-005", IDENTS[1])
            site.until_drained("gpu-002", "gpu-005")
        answers += play(attacked, STEPS - STEPS // 2, chance)
        for site in (attacked, quiet):
            site.fault("gpu-020", IDENTS[2])
            site.until_drained("gpu-002", "gpu-005", "gpu-020")
            settle(site)
        print(f"\nseed {SEED}, {STEPS} steps: {dict(answers)}", flush=True)  # noqa: T201 - how to play it again
        assert answers[200] > STEPS / 5, "the attack was refused as a whole: it shows nothing"
        assert attacked.standing(OWN) == quiet.standing(OWN)
        at = datetime.now(UTC)
        found, usual = scores(attacked, at), scores(quiet, at)
        assert {key: found[key] for key in found if key[0] not in STRUCK} == {
            key: usual[key] for key in usual if key[0] not in STRUCK
        }
        # These were struck some seconds apart: an age is in their score.
        assert {key: found[key] for key in found if key[0] in STRUCK} == pytest.approx(
            {key: usual[key] for key in usual if key[0] in STRUCK}, rel=0.02
        )


def scores(site: GuardedSite, at: datetime) -> dict[tuple[str, int], float]:
    """The scores of all other nodes as of one moment, by node and horizon, from what the site's store holds."""
    return {(one.node, one.horizon_h): one.score for one in score_nodes(site.engine, at) if one.node != OWN}

"""`GET /riskiest`: the nodes for a person to check first, what that finds, and what acting on each is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import HORIZONS_H, present
from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server
from predictor.history.what_failed import NOUNS
from schedulers.policy.fact_queries import jobs_on_nodes
from schedulers.policy.facts import JobFacts
from schedulers.policy.settings import Policy
from schedulers.policy.thresholds import avoided_gpu_h, failure_gpu_h
from store.models.registry import list_models
from store.nodes.fleet import NodePage, count_states, node_page
from store.nodes.node_states import unusual_gpus
from store.records.score import at_least_one
from wire.money.price import GpuHourPrice, with_money
from wire.nodes import RiskiestJson

router = APIRouter(prefix=PREFIX, tags=["scores"])


# Nodes that are read beyond the list: of equal risks of a day that of seven days decides.
_TIED = 50


class RiskiestQuery(BaseModel):
    """How many nodes somebody has time for. Of 1, 5, 10, 20 and 50 a record is kept."""

    count: int = Field(default=10, ge=1, le=100)


@router.get("/riskiest", operation_id="get_riskiest", summary="Nodes to check first", responses=answer(RiskiestJson))
def get_riskiest(_who: Reader, server: Server, query: Annotated[RiskiestQuery, Query()]) -> Response:
    """The nodes at work with the highest risk of 24 h, and how likely it is that one of them fails."""
    settings, now = server.settings, server.clock()
    with server.engine.connect() as connection:
        fleet = present(connection, settings, now)
        found = node_page(connection, fleet, NodePage(by_score=True, limit=query.count + _TIED, at_work=True))
        states = {} if found else {state: count for state, (count, _gpus) in count_states(connection, fleet).items()}
        champions = list_models(connection, role="champion")
        usual = settings.policy.costs.node_gpus
        jobs = jobs_on_nodes(connection, now, usual, unusual_gpus(connection, usual))
    model = next((one for one in champions if one["horizon_h"] == HORIZONS_H[0]), None)
    checks = {} if model is None else model["checks"]
    worth = _NodeWorth(settings.policy, jobs, max((job.gpus for job in jobs.values()), default=None))
    found.sort(key=lambda row: (-row["score_24h"], -(row["score_7d"] or 0.0), row["node"]))
    items = [worth.of(row, settings.gpu_hour_price) for row in found[: query.count]]
    return reply(
        {
            "as_of": now,
            "scored_at": fleet.scored[HORIZONS_H[0]],
            "horizon_h": HORIZONS_H[0],
            "model": None if model is None else model["id"],
            "averted": settings.policy.costs.averted,
            "chance": at_least_one([one["score"] for one in items]) if items else None,
            "items": items,
            "states": states,
            "checked": checks.get("checked"),
            "record": _record(checks.get("lists"), query.count, worth, settings.gpu_hour_price),
            "leads": _leads(checks.get("leads")),
        }
    )


def _record(
    lists: Sequence[Mapping[str, Any]] | None, count: int, worth: "_NodeWorth", price: GpuHourPrice | None
) -> dict[str, Any] | None:
    """What came of lists as long as this one; None where none has been judged."""
    kept = next((one for one in lists or () if one["nodes"] == count), None)
    if kept is None:
        return None
    action = count * avoided_gpu_h(worth.policy.costs, worth.policy.costs.node_gpus)
    lost = kept["lost_gpu_h"]
    net = None if lost is None else worth.policy.costs.averted * lost - action
    return with_money({**kept, "action_gpu_h": action, "worth_gpu_h": net}, price)


def _leads(leads: Mapping[str, Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Lead times by what failed, the most frequent first."""
    ordered = sorted((leads or {}).items(), key=lambda item: (-item[1]["outages"], item[0]))
    return [
        {
            "failed": name,
            "words": NOUNS.get(name, name),
            "outages": one["outages"],
            "foreseen": one["foreseen"],
            **{f"{part}_h": one[part] for part in ("p10", "p50", "p90")},
        }
        for name, one in ordered
    ]


@dataclass(frozen=True, slots=True)
class _NodeWorth:
    """What acting on a node is worth, by the job on it; else by the largest that runs, for it may come there next."""

    policy: Policy
    jobs: Mapping[str, JobFacts]
    largest_job_gpus: int | None

    def of(self, row: Mapping[str, Any], price: GpuHourPrice | None) -> dict[str, Any]:
        """A node of the answer: what its failure would cost, what keeping it from work costs, and the difference."""
        costs, score = self.policy.costs, row["score_24h"]
        job = self.jobs.get(row["node"])
        gpus = row["gpus"] or costs.node_gpus
        job_gpus = job.gpus if job is not None else self.largest_job_gpus or costs.job_gpus
        failure, action = failure_gpu_h(costs, job_gpus), avoided_gpu_h(costs, gpus)
        worth = score * costs.averted * failure - action
        told = {
            "node": row["node"],
            "state": row["state"],
            "score": score,
            "reasons": row["reasons"] or [],
            "job": None if job is None else job.job,
            "run": None if job is None else job.run,
            "job_gpus": job_gpus,
            "failure_gpu_h": failure,
            "action_gpu_h": action,
            "worth_gpu_h": worth,
            "pays": worth > 0,
        }
        return with_money(told, price)

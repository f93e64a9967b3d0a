"""Hints, the holds of schedulers for them, tests of held nodes, deliveries; who calls: `GET /hints`, `/whoami` ..."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from store.records.event import Action
from store.records.hint import HintAction, HintState, HoldState
from wire.message import Always, JsonBody, JsonObject, Sometimes, Text, Time, example, one_of
from wire.money.price import MoneyJson

MOST_OUTPUT = 4096  # characters of a test's output


class HoldJson(JsonObject, frozen=True, kw_only=True):
    """The hold of one scheduler for a hint, as it was read back.

    `asked`: the time of the last order; `observed`: the time at which this state was first seen. `action` is the last
    order; it is `release` while the hold is being removed.
    """

    scheduler: Annotated[str, example("slurm")]
    state: Annotated[str, one_of(HoldState)] = ""
    action: Annotated[str, one_of(HintAction)] = ""
    detail: str | None = None
    asked: Time | None = None
    observed: Time | None = None


class HintMarkJson(JsonObject, frozen=True, kw_only=True):
    """A node's open hint, in short."""

    id: str
    action: Annotated[str, one_of(HintAction)]
    state: Annotated[str, one_of(HintState)]


class ApprovalJson(JsonObject, frozen=True, kw_only=True):
    """One person's approval of a hint that needs two."""

    by: Annotated[str, example("person:alice@example.com")]
    person: Annotated[str, example("person:alice@example.com")]
    time: Time


HintBasis = Literal["acted", "control", "asked", "shadow"]


class HintOutcomeJson(JsonObject, frozen=True, kw_only=True):
    """What came of one hint, judged once its time was over.

    `right`: its node failed within 24 h, `lead_s` after the hint. It is null for a hint that a scheduler carried out:
    a held node cannot show whether it would have failed. GPU-hours that it cost and saved, or would have.
    """

    judged: Time
    basis: Annotated[str, one_of(HintBasis)]
    right: bool | None = None
    lead_s: float | None = None
    held_gpu_h: float | None = None
    saved_gpu_h: float | None = None
    held_money: Sometimes[MoneyJson | None] = None
    saved_money: Sometimes[MoneyJson | None] = None


class HintRiskJson(JsonObject, frozen=True, kw_only=True):
    """The risk of a hint's node within 24 h at present, and of when it is."""

    score: Annotated[float, example(0.13)]
    time: Time


class RemedyJson(JsonObject, frozen=True, kw_only=True):
    """What to do about a fault, and by which verdict; null: by the fault's own line, which asks for `line_action`.

    `title`: the cause as pages call it; `elsewhere`: it is no part of the fault's own node.
    """

    action: Annotated[str, one_of(Action)] = "none"
    verdict: Annotated[str | None, example("v3f0c5a9b8e4d1f8a")] = None
    title: Annotated[str, example("switch leaf004")] = ""
    elsewhere: bool = False
    line_action: Annotated[str | None, one_of(Action)] = None


class HintJson(JsonObject, frozen=True, kw_only=True):
    """A request to a scheduler. `evidence.control`: it is only recorded, because the node is in the control group.

    `job`: the job that it concerns, beside the node. `policy`: the version of the policy that last requested it.
    `approvals` and `approvals_needed`: of a proposed one, where the configuration has large approvals take two people.
    `evidence.score` is the risk of when it was made (`evidence.scored`), `risk_now` of an open one that of the present.
    `remedy`: what people are to do about the fault that it was made for. `outcome`: what came of it, once that is
    judged. `held_money`, `failure_money`: the GPU-hours of `evidence.cost` by the configuration's `gpu_hour_price`.
    """

    id: str
    node: str
    action: Annotated[str, one_of(HintAction)]
    state: Annotated[str, one_of(HintState)]
    reason: Annotated[str, example("foreshock: Xid 79 GPU has fallen off the bus.")] = ""
    evidence: dict[str, Any] = {}
    owner: Annotated[Always[str], example("foreshock")] = None
    created: Always[Time] = None
    valid_until: Always[Time] = None
    job: Sometimes[str | None] = None
    policy: Sometimes[str | None] = None
    placements: Sometimes[tuple[HoldJson, ...]] = ()
    approvals: Sometimes[tuple[ApprovalJson, ...]] = ()
    approvals_needed: Sometimes[int] = 1
    remedy: Sometimes[RemedyJson | None] = None
    risk_now: Sometimes[HintRiskJson | None] = None
    outcome: Sometimes[HintOutcomeJson | None] = None
    held_money: Sometimes[MoneyJson | None] = None
    failure_money: Sometimes[MoneyJson | None] = None


class ValidationJson(JsonObject, frozen=True, kw_only=True):
    """One test of a held node. `passed` is null while it runs, and for one that said nothing of the node."""

    seq: int
    hint: str
    node: str
    command: Annotated[str, example("srun -w gpu-017 dcgmi diag -r 3", "reported by ci")]
    started: Time
    ended: Time | None = None
    passed: bool | None = None
    exit_code: int | None = None
    output: str


class ValidationReportJson(JsonBody, frozen=True, kw_only=True):
    """The result of a test of a held node by another system."""

    passed: bool
    detail: Annotated[str, Meta(max_length=MOST_OUTPUT, pattern=r"^[^\x00]*$")] = ""


class TicketClosingJson(JsonBody, frozen=True, kw_only=True):
    """What a ticket system says of a ticket that is closed: its own name of it, and what was done."""

    reference: Annotated[str, Meta(max_length=255, pattern=r"^[^\x00]*$")] = ""
    text: Annotated[str, Meta(max_length=500, pattern=r"^[^\x00]*$")] = ""


class TicketJson(JsonObject, frozen=True, kw_only=True):
    """A closed ticket. `validation`: `begins`, its node is tested anew; `waits`, until the ground of the hold has gone;
    `none`, the server has no test (`release.validate`). `closed`, `by`, `reference`: of the last ticket of its hint.
    """

    ticket: Annotated[str, example("3f2a0c5a9b8e4d1f.0")]
    hint: str
    node: str
    state: Annotated[str, one_of(HintState)]
    closed: Time | None = None
    by: str | None = None
    reference: str | None = None
    validation: Annotated[str, one_of(Literal["begins", "waits", "none"])]


class DeliveryAttemptJson(JsonObject, frozen=True, kw_only=True):
    """One attempt at a delivery; `status` is that of HTTP, null where no answer came."""

    time: Time
    outcome: Annotated[str, one_of(Literal["delivered", "retry", "refused", "gone"])]
    status: Annotated[int | None, example(204)] = None
    duration_s: Annotated[float, example(0.012)]
    detail: Annotated[str, example("HTTP 204")]


class DeliveryJson(JsonObject, frozen=True, kw_only=True):
    """A message of a hint to one receiver; `id` is the webhook-id."""

    id: Annotated[str, example("3f2a0c5a9b8e4d1f.cordon.1740830400.ops")]
    hint: str
    scheduler: Annotated[str, example("ops")]
    action: Annotated[str, example("cordon")]
    state: Annotated[str, one_of(Literal["owed", "delivered", "failed", "expired"])]
    attempts: int
    due: Time
    last_error: str | None = None
    log: tuple[DeliveryAttemptJson, ...]


class AckJson(JsonBody, frozen=True, kw_only=True):
    """The answer of a scheduler that pulls: it will act, it has acted, the node works again, or it refuses."""

    scheduler: Annotated[Text, Meta(description="The name of the scheduler."), example("volcano")]
    result: Literal["taken", "confirmed", "released", "refused"]
    detail: Annotated[str, Meta(max_length=500, pattern=r"^[^\x00]*$")] = ""


class TallyJson(JsonObject, frozen=True, kw_only=True):
    """Judged hints of one action and basis. `precision` and its 95 % interval are null for hints that were acted on.

    GPU-hours are sums of what is known; `unknown_held` and `unknown_saved` count the hints that are no part of them.
    """

    action: Annotated[str, one_of(HintAction)]
    basis: Annotated[str, one_of(HintBasis)]
    judged: int = 0
    right: int = 0
    precision: float | None = None
    low: float | None = None
    high: float | None = None
    lead_s: float | None = None
    held_gpu_h: Always[float] = None
    saved_gpu_h: Always[float] = None
    unknown_held: int = 0
    unknown_saved: int = 0
    held_money: Sometimes[MoneyJson | None] = None
    saved_money: Sometimes[MoneyJson | None] = None


class HindsightJson(JsonObject, frozen=True, kw_only=True):
    """The outcome of the hints made within a window."""

    since: Always[Time] = None
    until: Always[Time] = None
    node_days: float = 0.0
    false_holds_per_1000_node_days: float | None = None
    tallies: tuple[TallyJson, ...] = ()


class CallerJson(JsonObject, frozen=True, kw_only=True):
    """Who the server takes the caller for. `person` and `role` are null for a program.

    `two_people_above_nodes`: an approval beyond so many nodes needs two people; null: none does.
    """

    name: Annotated[str, example("person:alice@example.com token:dashboard")] = ""
    person: Annotated[str | None, example("alice@example.com")] = None
    role: Annotated[str | None, example("operator")] = None
    scopes: tuple[str, ...] = ()
    two_people_above_nodes: int | None = None

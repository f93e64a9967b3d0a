"""Goodput on /metrics, and the rules that are shipped for it, judged by promtool."""

import re
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml
from fastapi.testclient import TestClient
from real.patience import patience
from real.programs import need

from api.gauges.goodput import KEEP_S, RUNS, GoodputGauges
from store.database.connections import writing
from store.runs.ledgers import StoredLedger, save_ledgers

from .conftest import NOW, Clock
from .test_goodput_route import fill

RULES = Path(__file__).parents[2] / "deploy/prometheus/foreshock-goodput-rules.yaml"

UNIT = """
rule_files: [RULES]
evaluation_interval: 5m
tests:
  - interval: 5m
    input_series:
      # Two server processes tell the same. Half a day of each day was training; an hour of it is taken back at the end.
      - {series: 'foreshock_run_seconds{run="a",bucket="productive",instance="x"}', values: '0+150x564 84600x10 81000'}
      - {series: 'foreshock_run_seconds{run="a",bucket="productive",instance="y"}', values: '0+150x564 84600x10 81000'}
      - {series: 'foreshock_run_seconds{run="a",bucket="lost_work",instance="x"}', values: '0x575 5400'}
      - {series: 'foreshock_run_seconds{run="a",bucket="unknown",instance="x"}', values: '0+150x576'}
      # A run that ended long ago is nothing to judge.
      - {series: 'foreshock_run_seconds{run="old",bucket="productive",instance="x"}', values: '7x576'}
      - {series: 'foreshock_lost_gpu_seconds{cause="unexplained",instance="x"}', values: '600000x576'}
      - {series: 'foreshock_lost_gpu_seconds{cause="unexplained",instance="y"}', values: '600000x576'}
      - {series: 'foreshock_lost_gpu_seconds{cause="hardware",instance="x"}', values: '200000x576'}
    promql_expr_test:
      - expr: foreshock:run_seconds:delta1d{bucket="productive",run="a"}
        eval_time: 47h
        exp_samples: [{labels: 'foreshock:run_seconds:delta1d{bucket="productive",run="a"}', value: 43200}]
      - expr: foreshock:run_goodput:delta1d
        eval_time: 47h
        exp_samples: [{labels: 'foreshock:run_goodput:delta1d{run="a"}', value: 0.5}]
      - expr: foreshock:run_goodput:delta1d
        eval_time: 48h
        exp_samples: [{labels: 'foreshock:run_goodput:delta1d{run="a"}', value: 0.4375}]
      - expr: foreshock:run_goodput:delta1d
        eval_time: 12h
        exp_samples:
          - {labels: 'foreshock:run_goodput:delta1d{run="a"}', value: 0.5}
          - {labels: 'foreshock:run_goodput:delta1d{run="old"}', value: 1}
      - expr: foreshock:lost_gpu_seconds:share{cause="unexplained"}
        eval_time: 10h
        exp_samples: [{labels: 'foreshock:lost_gpu_seconds:share{cause="unexplained"}', value: 0.75}]
    alert_rule_test:
      - {eval_time: 47h, alertname: ForeshockGoodputLow, exp_alerts: [ALERT1]}
      - {eval_time: 47h, alertname: ForeshockRunUnaccounted, exp_alerts: [ALERT2]}
      - {eval_time: 47h, alertname: ForeshockSavesTooLong, exp_alerts: []}
      - {eval_time: 47h, alertname: ForeshockLossesUnexplained, exp_alerts: [ALERT3]}
"""


def alert(labels: str, summary: str, description: str) -> str:
    """An alert that is expected, as promtool reads it."""
    return (
        "{exp_labels: {severity: warning, " + labels + "}, exp_annotations: {summary: '" + summary.replace("'", "''")
        + "', description: '" + description.replace("'", "''") + "'}}"
    )  # fmt: skip


def promtool(*arguments: str, folder: Path) -> None:
    """It must find nothing wrong."""
    command = [need("promtool", "prometheus"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(60), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.integration
def test_prometheus_takes_the_rules_and_they_mean_what_they_say(tmp_path: Path) -> None:
    """Two processes are one; what is taken back lowers the day's goodput; old runs raise no alarm."""
    promtool("check", "rules", str(RULES), folder=tmp_path)
    rules = {rule["alert"]: rule["annotations"] for g in yaml.safe_load(RULES.read_text())["groups"]
             for rule in g["rules"] if "alert" in rule}  # fmt: skip
    said = {
        "ALERT1": ("ForeshockGoodputLow", "run: a", "Only 50% of the last day of a was training that counts"),
        "ALERT2": (
            "ForeshockRunUnaccounted",
            "run: a, bucket: unknown",
            "No log tells what a did in 50% of the last day",
        ),
        "ALERT3": (
            "ForeshockLossesUnexplained",
            "cause: unexplained",
            "Nobody can say why 75% of the GPU-hours of interruptions were lost",
        ),
    }
    text = UNIT.replace("RULES", str(RULES), 1)
    for word, (name, labels, summary) in said.items():
        text = text.replace(word, alert(labels, summary, rules[name]["description"]))
    (tmp_path / "unit.yaml").write_text(text)
    promtool("test", "rules", "unit.yaml", folder=tmp_path)


def shown(client: TestClient) -> dict[str, float]:
    """The gauges of goodput, by name and labels."""
    lines = client.get("/metrics").text.splitlines()
    told = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    names = ("foreshock_goodput", "foreshock_run_", "foreshock_cluster_", "foreshock_lost_")
    return {name: float(value) for name, _, value in told if name.startswith(names)}


def test_runs_cluster_and_causes_are_shown(any_client: TestClient, any_engine: sa.Engine) -> None:
    """As the ledgers and the account of the last days tell them."""
    fill(any_engine)
    told = shown(any_client)
    assert told['foreshock_goodput_ratio{run="run-2"}'] == 1.0
    assert told['foreshock_run_seconds{bucket="lost_work",run="run-0"}'] == 3000.0
    assert told['foreshock_cluster_gpu_seconds{level="allocated"}'] == 24.0 * 3600
    assert told['foreshock_cluster_goodput_ratio{factor="runtime"}'] == pytest.approx(1 / 3)
    assert told['foreshock_lost_gpu_seconds{cause="hardware"}'] == 16.0 * 3600
    assert told['foreshock_run_interruptions{cause="hardware"}'] == 2.0
    assert 'foreshock_cluster_goodput_ratio{factor="program"}' not in told  # not known: not there, not 0


def test_every_name_in_the_rules_is_shown(client: TestClient, engine: sa.Engine) -> None:
    """A name that nobody exports would never fire."""
    fill(engine)
    text = client.get("/metrics").text
    for name in set(re.findall(r"\bforeshock_\w+", RULES.read_text())):
        assert f"# TYPE {name} gauge" in text, name
    recorded = {
        rule["record"] for g in yaml.safe_load(RULES.read_text())["groups"] for rule in g["rules"] if "record" in rule
    }
    assert set(re.findall(r"foreshock:[\w:]+", RULES.read_text())) == recorded


def test_only_the_newest_runs_have_series(client: TestClient, engine: sa.Engine, clock: Clock) -> None:
    """However many there were."""
    with writing(engine).begin() as connection:
        for n in range(RUNS + 5):
            clock.forward(minutes=1)
            content = {"account": {"goodput": 0.5, "buckets": {"productive": 1.0}}}
            save_ledgers(connection, [StoredLedger(f"run-{n}", clock(), clock(), {}, content)])
    told = [name for name in shown(client) if name.startswith("foreshock_goodput_ratio")]
    assert len(told) == RUNS
    assert 'foreshock_goodput_ratio{run="run-4"}' not in told
    assert f'foreshock_goodput_ratio{{run="run-{RUNS + 4}"}}' in told


def test_scrapes_within_a_minute_share_one_reading(engine: sa.Engine) -> None:
    """Twenty scrapers cost what one does."""
    now = [0.0]
    gauges = GoodputGauges(monotonic=lambda: now[0])
    with engine.connect() as connection:
        first = gauges.families(connection, NOW, {})
        assert gauges.families(connection, NOW, {}) is first
        now[0] = KEEP_S
        assert gauges.families(connection, NOW, {}) is not first

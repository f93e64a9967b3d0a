"""The rules that Prometheus is given, judged by promtool."""

import re
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from real.patience import patience
from real.programs import need

from api.server.metrics import Metrics
from collectors.agent.sidecar import SpoolFigures
from collectors.metrics import SidecarMetrics
from collectors.registry import SCHEMES
from collectors.spool.spool import Spool
from collectors.telemetry.prometheus_rules import STATS, record_name, recorded, rules_text

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/foreshock-recording-rules.yaml"
ALERTS = ROOT / "deploy/prometheus/foreshock-alerts.yaml"

UNIT = """
rule_files: [{rules}]
evaluation_interval: 5m
tests:
  - interval: 1m
    input_series:
      - series: 'DCGM_FI_DEV_GPU_TEMP{{gpu="3",Hostname="gpu-017",pod="a"}}'
        values: '50 60 70 70 60 60'
      - series: 'DCGM_FI_DEV_GPU_TEMP{{gpu="3",Hostname="gpu-017",GPU_I_ID="1"}}'
        values: '99x5'
      - series: 'DCGM_FI_DEV_GPU_UTIL{{gpu="3",Hostname="gpu-017"}}'
        values: '100x5'
      - series: 'DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{gpu="3",Hostname="gpu-017",pod="a"}}'
        values: '7 7 7 _ _ _'
      - series: 'DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{gpu="3",Hostname="gpu-017",pod="b"}}'
        values: '_ _ _ 7 9 9'
      - series: 'node_infiniband_link_downed_total{{device="mlx5_0",port="1",instance="gpu-017:9100"}}'
        values: '1 1 1 1 2 2'
    promql_expr_test:
      - {{expr: 'foreshock:gpu_temp_c:min', eval_time: 5m, exp_samples: [{{labels: '{gpu} :min', value: 50}}]}}
      - {{expr: 'foreshock:gpu_temp_c:max', eval_time: 5m, exp_samples: [{{labels: '{gpu} :max', value: 70}}]}}
      - {{expr: 'foreshock:gpu_temp_c:last', eval_time: 5m, exp_samples: [{{labels: '{gpu} :last', value: 60}}]}}
      - {{expr: 'foreshock:gpu_temp_c:changes', eval_time: 5m, exp_samples: [{{labels: '{gpu} :changes', value: 3}}]}}
      - {{expr: 'foreshock:gpu_temp_c:sum', eval_time: 5m, exp_samples: [{{labels: '{gpu} :sum', value: 370}}]}}
      - {{expr: 'foreshock:gpu_temp_c:count', eval_time: 5m, exp_samples: [{{labels: '{gpu} :count', value: 6}}]}}
      - {{expr: 'foreshock:gpu_util_ratio:max', eval_time: 5m, exp_samples: [{{labels: '{util} :max', value: 1}}]}}
      - {{expr: 'foreshock:ecc_sbe:last', eval_time: 5m, exp_samples: [{{labels: '{ecc} :last', value: 9}}]}}
      - {{expr: 'foreshock:ecc_sbe:count', eval_time: 5m, exp_samples: [{{labels: '{ecc} :count', value: 6}}]}}
      - {{expr: 'foreshock:link_downed:max', eval_time: 5m, exp_samples: [{{labels: '{nic} :max', value: 2}}]}}
"""


def promtool(*arguments: str, folder: Path | None = None) -> str:
    """What it says of good rules; the end of the test for bad ones."""
    command = [need("promtool", "prometheus"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(60), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_that_are_shipped_are_those_of_the_table() -> None:
    """After a change of the table `prometheus_rules.rules_text()` writes them anew."""
    assert RULES.read_text() == rules_text(), f"write collectors.telemetry.prometheus_rules.rules_text() to {RULES}"


@pytest.mark.integration
@pytest.mark.parametrize("path", [RULES, ALERTS], ids=["recording", "alerts"])
def test_prometheus_takes_the_rules(path: Path) -> None:
    """As promtool reads them."""
    assert "SUCCESS" in promtool("check", "rules", str(path))


@pytest.mark.integration
def test_five_minutes_are_recorded_as_they_were(tmp_path: Path) -> None:
    """A GPU that changes its pod stays one GPU; a MIG instance's row is none; units are ours."""
    labels = {
        name: f'foreshock:{measure}{{{{exporter="{exporter}",{where}}}}}'
        for name, measure, exporter, where in (
            ("gpu", "gpu_temp_c", "dcgm", 'gpu="3",node="gpu-017"'),
            ("util", "gpu_util_ratio", "dcgm", 'gpu="3",node="gpu-017"'),
            ("ecc", "ecc_sbe", "dcgm", 'gpu="3",node="gpu-017"'),
            ("nic", "link_downed", "node_exporter", 'device="mlx5_0",node="gpu-017",port="1"'),
        )
    }
    text = UNIT.format(rules=RULES, **labels).replace("{{", "{").replace("}}", "}")
    text = re.sub(r"'(foreshock:\w+)(\{[^}]*\}) (:\w+)'", r"'\1\3\2'", text)
    (tmp_path / "unit.yaml").write_text(text)
    assert "SUCCESS" in promtool("test", "rules", "unit.yaml", folder=tmp_path)


def test_every_measure_is_recorded_in_every_way() -> None:
    """Under one name for all exporters, told apart by a label."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    found = {(rule["record"], rule["labels"]["exporter"]) for rule in rules}
    assert found == {(record_name(one.measure, stat), one.exporter) for one in recorded() for stat in STATS}
    assert len(rules) == len(found)
    assert {"dcgm", "npu", "amd", "cambricon", "node_exporter"} == {one.exporter for one in recorded()}


def test_alerts_speak_of_figures_that_there_are(tmp_path: Path) -> None:
    """A name that nobody exports would never fire."""
    metrics = SidecarMetrics()
    with closing(Spool(tmp_path, 1_000_000)) as spool:
        metrics.registry.register(SpoolFigures(spool))
        shown = generate_latest(metrics.registry).decode()
    shown += generate_latest(Metrics().registry).decode()
    # What the database knows is read at scrape.
    server = "".join(path.read_text() for path in (ROOT / "api").rglob("*.py"))
    for name in set(re.findall(r"\bforeshock_\w+", ALERTS.read_text())):
        assert f"# TYPE {name} " in shown or f'"{name}"' in server, name


PROCESS = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'foreshock_process_up{{instance="server:1087",process="0"}}'
        values: '1x20'
      - series: 'foreshock_process_up{{instance="server:1087",process="1"}}'
        values: '1 1 0 0 1 1 0x14'
    alert_rule_test:
      - {{eval_time: 5m, alertname: ForeshockProcessDown, exp_alerts: []}}
      - {{eval_time: 10m, alertname: ForeshockProcessDown, exp_alerts: []}}
      - eval_time: 12m
        alertname: ForeshockProcessDown
        exp_alerts:
          - exp_labels: {{severity: warning, instance: "server:1087", process: "1"}}
            exp_annotations:
              summary: "Process 1 of the server on server:1087 does not answer the others"
              description: "It hangs, or is started again and again: see the log of foreshock serve."
"""


@pytest.mark.integration
def test_a_process_that_answers_no_more_is_an_alert(tmp_path: Path) -> None:
    """After five minutes; one that was started again within them is none."""
    (tmp_path / "unit.yaml").write_text(PROCESS.format(rules=ALERTS))
    assert "SUCCESS" in promtool("test", "rules", "unit.yaml", folder=tmp_path)


def test_the_reader_is_a_source() -> None:
    """By its scheme."""
    assert SCHEMES["prometheus"].module == "prometheus"

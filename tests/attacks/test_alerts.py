"""Each alert that is shipped fires when it should and is quiet when it should not, as promtool judges it."""

import subprocess
from pathlib import Path

import pytest
import yaml
from attacks.alert_cases import CASES, AlertCase
from real.patience import patience
from real.programs import need

PLACE = Path(__file__).parents[2] / "deploy" / "prometheus"
HOURS_MIN = 600  # cases that last longer are judged each five minutes, the interval of what is recorded for them


def shipped() -> dict[str, Path]:
    """The file of each alert under deploy/prometheus."""
    files = {path: yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in PLACE.glob("*.yaml")}
    grouped = {path: file["groups"] for path, file in files.items() if isinstance(file, dict) and "groups" in file}
    rules = [(path, rule) for path, groups in grouped.items() for group in groups for rule in group["rules"]]
    return {rule["alert"]: path for path, rule in rules if "alert" in rule}


SHIPPED = shipped()


def test_every_alert_has_a_case_of_both_kinds() -> None:
    """An alert that was never seen to fire, or never seen to be quiet, is no alert."""
    seen = [{case.alert for case in CASES if case.fires is fires} for fires in (True, False)]
    assert seen == [set(SHIPPED), set(SHIPPED)]


@pytest.mark.integration
@pytest.mark.parametrize("alert", sorted(SHIPPED))
def test_an_alert_fires_when_it_should_and_only_then(alert: str, tmp_path: Path) -> None:
    """Each of its cases in a time series of its own, beside what is recorded: promtool judges all that it is given."""
    cases = [case for case in CASES if case.alert == alert]
    groups = yaml.load(SHIPPED[alert].read_bytes(), yaml.CSafeLoader)["groups"]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert", alert) == alert]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    command = [need("promtool", "prometheus"), "test", "rules"]
    for interval, is_long in (("1m", False), ("5m", True)):
        tests = [_test(case) for case in cases if (case.at_min > HOURS_MIN) is is_long]
        unit = {"rule_files": ["rules.yaml"], "evaluation_interval": interval, "tests": tests}
        (tmp_path / f"{interval}.yaml").write_text(yaml.safe_dump(unit))
        command += [f"{interval}.yaml"] if tests else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(120), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def _test(case: AlertCase) -> dict[str, object]:
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) > 0 or vector(0)'
    return {
        "name": f"{case.alert}: {case.what}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": f"sum({firing}) > bool 0",
                "eval_time": f"{case.at_min}m",
                "exp_samples": [{"labels": "{}", "value": int(case.fires)}],
            }
        ],
    }

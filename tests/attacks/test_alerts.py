"""Each alert that is shipped fires when it should and is quiet when it should not, as promtool judges it."""

import subprocess
from pathlib import Path

import pytest
import yaml
from attacks.alert_cases import CASES, AlertCase
from real.patience import patience
from real.programs import need

PLACE = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = (PLACE / "foreshock-alerts.yaml", PLACE / "foreshock-goodput-rules.yaml")


def shipped() -> set[str]:
    """The names of the alerts of all files under deploy/prometheus."""
    files = [yaml.safe_load(path.read_text()) for path in PLACE.glob("*.yaml")]
    groups = [group for file in files if isinstance(file, dict) for group in file.get("groups", ())]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}


def test_every_alert_has_a_case_of_both_kinds() -> None:
    """An alert that was never seen to fire, or never seen to be quiet, is no alert."""
    assert shipped() == {case.alert for case in CASES if case.fires} == {case.alert for case in CASES if not case.fires}


@pytest.mark.integration
@pytest.mark.parametrize("alert", sorted(shipped()))
def test_an_alert_fires_when_it_should_and_only_then(alert: str, tmp_path: Path) -> None:
    """Each of its cases in a time series of its own."""
    tests = [_test(case) for case in CASES if case.alert == alert]
    unit = {"rule_files": [str(path) for path in RULES], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "unit.yaml").write_text(yaml.safe_dump(unit))
    command = [need("promtool", "prometheus"), "test", "rules", "unit.yaml"]
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

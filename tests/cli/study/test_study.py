"""`foreshock study`: the page is made by one run, and the real tapes give what the page in docs/ says."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import foreshock
from cli.study.page import gwdg_page, verdict
from cli.study.timelines import Timelines, read_timelines

ROOT = Path(__file__).parents[3]
GWDG = ROOT / "fixtures" / "real" / "gwdg"


@pytest.fixture(scope="module")
def lines() -> Timelines:
    """The timelines of the real tapes."""
    return read_timelines(GWDG)


def test_the_page_in_docs_is_what_the_tapes_give(lines: Timelines) -> None:
    """Line by line; `foreshock study` writes it."""
    page = (ROOT / "docs" / "real.md").read_text(encoding="utf-8")
    assert "\n".join(gwdg_page(lines)) in page


def test_no_hint_comes_before_its_first_sign(lines: Timelines) -> None:
    """Nothing is foretold: what is asked rests on what was seen by then."""
    hinted = [one for one in lines.lines if one.hint is not None]
    assert len(hinted) >= 7
    assert all(one.first_sign is not None and one.hint is not None and one.first_sign <= one.hint for one in hinted)


def test_nodes_that_boot_together_are_told_as_maintenance(lines: Timelines) -> None:
    """2025-03-21 09:40: four nodes at once are one planned thing, and no four faults."""
    told = [one.words for one in lines.together if one.time.isoformat() == "2025-03-21T09:40:00+00:00"]
    assert len(told) == 1
    assert told[0].startswith("4 nodes were booted") and "planned maintenance" in told[0]


def test_a_tape_that_cannot_be_used_is_left_out_and_named(tmp_path: Path) -> None:
    """A broken file, and two nodes under one name of a tape; the sound one is studied."""
    import pandas as pd

    names = sorted(path.name for path in (GWDG / "tapes").iterdir())[:3]
    for name in names:
        shutil.copytree(GWDG / "tapes" / name, tmp_path / "tapes" / name)
    for name in ("facts.json", "incidents.csv"):
        shutil.copy(GWDG / name, tmp_path / name)
    (tmp_path / "tapes" / names[0] / "telemetry" / "gpu.parquet").write_bytes(b"PAR1 no more")
    host = tmp_path / "tapes" / names[2] / "telemetry" / "host.parquet"
    rows = pd.read_parquet(host)
    rows.loc[rows.index[:5], "node"] = "another"
    rows.to_parquet(host, index=False)
    found = read_timelines(tmp_path)
    assert [one.tape for one in found.lines] == [names[1]]
    assert [why.split(":")[0] for why in found.skipped] == [names[0], names[2]]
    assert "2 nodes in one tape" in found.skipped[1]


def test_a_folder_without_a_set_is_refused(tmp_path: Path) -> None:
    """The error names the folder and what it looks for."""
    result = CliRunner().invoke(foreshock, ["study", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds none of gwdg, m100" in result.output


def test_too_small_a_set_has_no_figure_but_its_reason(tmp_path: Path) -> None:
    """Two nodes without an outage teach nothing: the page says so in place of figures."""
    folder = tmp_path / "faults"
    folder.mkdir()
    (folder / "nodes.csv").write_text("node,gpus\na,8\nb,8\n", encoding="utf-8")
    page = tmp_path / "real.md"
    result = CliRunner().invoke(foreshock, ["study", str(tmp_path), "--json", "--markdown", str(page)])
    assert result.exit_code == 0, result.output
    assert isinstance(json.loads(result.stdout)["faults"], str)
    assert "No figure: " in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("interval", "said"),
    [([0.01, 0.03], "is better"), ([-0.03, -0.01], "is worse"), ([-0.01, 0.03], "is not shown to be better")],
)
def test_the_verdict_follows_the_interval_of_the_difference(interval: list[float], said: str) -> None:
    """Not its middle alone; ROC-AUC stands beside it, for the two may differ."""
    gain = {"average_precision": sum(interval) / 2, "roc_auc": -0.02}
    over = {"gain": gain, "intervals": {"average_precision": interval, "roc_auc": [-0.05, 0.01]}}
    assert f"model {said}" in verdict({"over_365d": over})
    assert "ROC-AUC -0.0200 (-0.0500 to +0.0100)" in verdict({"over_365d": over})
    assert "too few outages" in verdict({"over_365d": {"gain": gain, "intervals": None}})

"""From dumps in an archive to the answer of `foreshock diagnose`: the missing rank's GPU, on its node."""

import json
from pathlib import Path

from click.testing import CliRunner

from cli.main import foreshock

DUMPS = Path(__file__).parents[3] / "fixtures" / "flight" / "dumps"
JOBS = (
    "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode\n"
    "4711|llm|CANCELLED|2026-11-23T02:00:00|2026-11-23T02:05:00|2026-11-23T03:25:00|4|gpu-[001-004]|0:15\n"
)


def test_diagnose_names_the_gpu_of_the_rank_that_wrote_no_dump(tmp_path: Path) -> None:
    """Three real dumps of a job of four ranks, one on each node, and Slurm's books; nobody names the run."""
    folder = tmp_path / "archive" / "flight" / "llm"
    folder.mkdir(parents=True)
    for rank in (0, 1, 3):
        (folder / f"nccl_trace_rank_{rank}").write_bytes((DUMPS / f"nccl_trace_rank_{rank}").read_bytes())
    (tmp_path / "archive" / "jobs.csv").write_text(JOBS)
    database = f"sqlite:///{tmp_path}/f.db"
    done = CliRunner().invoke(foreshock, ["ingest", str(tmp_path / "archive"), "--db", database])
    assert done.exit_code == 0, done.output
    for run in (["--run", "llm"], []):
        done = CliRunner().invoke(foreshock, ["diagnose", "--db", database, "--json", *run])
        assert done.exit_code == 0, done.output
        first = json.loads(done.stdout)[0]
        assert (first["class"], first["node"], first["device"]["index"]) == ("gpu", "gpu-003", 0)
        assert "rank 2 of llm is missing" in first["reason"]

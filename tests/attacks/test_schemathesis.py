"""Schemathesis, an independent fuzzer of HTTP APIs, against the real server by its own published description.

It makes requests that the description allows and requests that it forbids, and looks at every answer: no crash, no
status, header or body that the description does not name. By hand, for longer:

    schemathesis run http://127.0.0.1:10870/openapi.json -H "Authorization: Bearer ..." --max-examples 100
"""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from real.foreshock import serve
from real.patience import patience

# The bounds: so many requests an operation and kind of test, the same in each run, and none goes to another host.
EXAMPLES = 3
SEED = 20261122
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "allow_header_conformance",
    "unsupported_method",
)
TOKEN = "schemathesis-0123456789abcdef0123456789abcdef"
CONFIG = f"""
version: 1
tokens:
  - name: fuzzer
    sha256: {hashlib.sha256(TOKEN.encode()).hexdigest()}
    scopes: [ingest, "ingest:fleet", read, act, join]
"""


@pytest.mark.integration
@pytest.mark.parametrize("phase", ["examples,fuzzing", "coverage"])
def test_schemathesis_finds_nothing(tmp_path: Path, phase: str) -> None:
    """Whoever may do everything sends anything: each answer is one that the description names."""
    config = tmp_path / "foreshock.yaml"
    config.write_text(CONFIG)
    program = str(Path(sys.executable).parent / "schemathesis")
    with serve(f"sqlite:///{tmp_path}/foreshock.db", tmp_path, "--config", str(config)) as server:
        options = ["--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES), "--seed", str(SEED)]
        options += ["--header", f"Authorization: Bearer {TOKEN}", "--generation-database", "none", "--no-color"]
        options += ["--phases", phase, "--continue-on-failure", "--suppress-health-check", "all"]
        if phase == "coverage":  # every boundary of every parameter: of the routes that take bodies alone
            options += ["--include-method", "POST"]
        run = subprocess.run(
            [program, "run", f"{server.url}/openapi.json", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=patience(300),
            check=False,
        )
        assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
        told = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
        assert told is not None, run.stdout[-2000:]
        assert int(told[1]) == int(told[2]) >= 150
        assert server.answers("/readyz")

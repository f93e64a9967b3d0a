"""What a distribution carries: its licence, its hashes, the list of its parts."""

import hashlib
import json
import re
import subprocess
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import licences
import pytest
from real.patience import patience

ROOT = Path(__file__).parents[1]
# Of https://www.apache.org/licenses/LICENSE-2.0.txt
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
# The demo's real node, whose files are links in the repository.
TAPE = {f"cli/replay/gwdg/{name}" for name in ("gpu.parquet", "host.parquet", "nodes.csv", "LICENSE", "CITATION.cff")}
PROJECTS = sorted({path.parent for path in ROOT.glob("**/pyproject.toml") if ".venv" not in path.parts})


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_a_built_distribution_names_and_holds_its_licence(project: Path, tmp_path: Path) -> None:
    """Apache-2.0, in full, in the wheel that uv builds; the text is the Apache Foundation's to the letter."""
    command = [ROOT / ".venv/bin/uv", "build", "--quiet", "--offline", "--wheel", "--out-dir", tmp_path, project]
    subprocess.run(command, check=True, timeout=patience(120))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        said = Parser().parsestr(file.read(next(n for n in names if n.endswith("dist-info/METADATA"))).decode())
        text = file.read(next(n for n in names if n.endswith("dist-info/licenses/LICENSE")))
    assert (said["License-Expression"], said["License-File"]) == ("Apache-2.0", "LICENSE")
    assert hashlib.sha256(text).hexdigest() == APACHE
    if project == ROOT:
        assert set(names) >= TAPE
        deployed = {
            path.relative_to(ROOT)
            for path in (ROOT / "deploy").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert set(names) >= {str(path) for path in deployed}


def test_no_licence_is_a_surprise() -> None:
    """Permissive, or in the table of what is known; the page says so of every package."""
    found = licences.installed()
    assert [one.trouble for one in found if one.trouble] == []
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page(found), "run make licences"
    assert {"click", "psycopg", "streamlit", "ray"} <= {one.name for one in found}
    assert not {"pytest", "mypy", "ruff"} & {one.name for one in found}


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "AGPL-3.0-or-later", "MIT AND SSPL-1.0", None])
def test_a_strange_licence_is_trouble(licence: str | None) -> None:
    """Copyleft, source-available, or none at all; one of two that are a choice as well."""
    assert licences.PackageLicence("new", (), licence).trouble is not None
    assert licences.PackageLicence("new", (), "MIT OR Apache-2.0").trouble is None
    assert licences.PackageLicence("psycopg", (), "AGPL-3.0-only").trouble is not None


def test_every_file_of_the_lock_has_its_hash() -> None:
    """And make installs from the lock alone, checked against pyproject.toml."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    files = [
        file
        for one in lock["package"]
        for file in (*one.get("wheels", ()), *([one["sdist"]] if "sdist" in one else ()))
    ]
    assert len(files) > 1000
    assert [file["url"] for file in files if not re.fullmatch(r"sha256:[0-9a-f]{64}", file.get("hash", ""))] == []
    syncs = re.findall(r"^.*\$\(UV\) sync.*$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(syncs) == 2
    assert all("--locked" in line for line in syncs)


def test_make_sbom_lists_what_a_site_installs(tmp_path: Path) -> None:
    """As CycloneDX with a hash of each file, and as requirements of which each has its hashes."""
    makefile = (
        (ROOT / "Makefile")
        .read_text(encoding="utf-8")
        .replace("build/", f"{tmp_path}/")
        .replace("mkdir -p build", "true")
    )
    command = ["make", "--silent", "--file", "-", "sbom"]
    subprocess.run(command, input=makefile, text=True, check=True, cwd=ROOT, timeout=patience(120))
    listed = json.loads((tmp_path / "foreshock.cdx.json").read_text())
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    parts = {part["name"]: part for part in listed["components"]}
    assert {one.name for one in licences.installed()} <= parts.keys()
    assert not {"pytest", "mypy"} & parts.keys()
    hashed = [place["hashes"][0]["alg"] for place in parts["msgspec"]["externalReferences"]]
    assert set(hashed) == {"SHA-256"}
    required = (tmp_path / "requirements.txt").read_text().replace("\\\n", "")
    lines = [line for line in required.splitlines() if line and not line.lstrip().startswith("#")]
    assert len(lines) > 50
    assert [line for line in lines if "--hash=sha256:" not in line] == []


def test_the_security_page_names_no_person() -> None:
    """Reports go through the forge: an address in a file outlives the person who reads it."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "private" in text
    assert not re.search(r"\S+@\S+", text)

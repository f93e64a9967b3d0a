"""Documentation that lacks a command, a kind of file or a link's target fails here."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import COMMANDS, foreshock

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
ALL_TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_documented(command: str) -> None:
    """Somewhere in the README or docs/ stands `foreshock COMMAND`."""
    assert f"foreshock {command}" in ALL_TEXT


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    """--help works for each and says more than its usage line."""
    result = CliRunner().invoke(foreshock, [command, "--help"])
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) > 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link's file exists."""
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_long_option_in_a_command_line_exists(page: Path) -> None:
    """A documented `foreshock COMMAND --option` is one that the command takes."""
    for line in re.findall(r"foreshock ([a-z]+(?: [^\n`#]*)?)", page.read_text(encoding="utf-8")):
        command, *words = line.split()
        if command not in COMMANDS:
            continue
        help_text = CliRunner().invoke(foreshock, [command, "--help"]).output
        for depth in (1, 2):  # of a group's command, and of a group's group's
            if len(words) >= depth and not any(word.startswith("-") for word in words[:depth]):
                help_text += CliRunner().invoke(foreshock, [command, *words[:depth], "--help"]).output
        for option in (w.split("=")[0] for w in words if re.fullmatch(r"--[a-z][a-z-]+(=.*)?", w)):
            assert option in help_text, f"{page.name}: foreshock {command} has no {option}"


def test_every_package_of_the_environment_is_explained() -> None:
    """Each dependency that pyproject.toml names has a line in the README that says what it is for."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [p for extra in project["optional-dependencies"].values() for p in extra]
    names = {re.split(r"[\[><=]", requirement)[0] for requirement in wanted}
    stubs = {name for name in names if name.startswith("types-") or name.endswith("-stubs")}
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("## What it stands on")[1]
    assert not [name for name in sorted(names - stubs) if name not in table]

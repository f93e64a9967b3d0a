"""Help and usage errors come at once: no command loads the server's packages before it has work to do."""

import subprocess
import sys

HEAVY = ("sqlalchemy", "numpy", "pandas", "scipy", "sklearn", "pyarrow", "fastapi", "uvicorn", "streamlit", "httpx2")
PROGRAM = f"""
import sys, click
from click.testing import CliRunner
from cli.main import foreshock

def walk(group, words):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        for last, code in (("--help", 0), ("--no-such-option", 2)):
            found = CliRunner().invoke(foreshock, [*words, name, last])
            assert found.exit_code == code, (words, name, last, found.output)
            loaded = [one for one in {HEAVY!r} if one in sys.modules]
            assert not loaded, f"{{' '.join([*words, name, last])}} loads {{', '.join(loaded)}}"
        if isinstance(command, click.Group):
            walk(command, [*words, name])
walk(foreshock, [])
"""


def test_help_and_usage_errors_load_no_package_of_the_server() -> None:
    """Of every command and subcommand, in a process that has loaded nothing yet."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-600:]

"""A stand-in for the driver's library libnvidia-ml.so.1, built of `tests/collectors/fake_nvml.c`."""

import shutil
import subprocess
from pathlib import Path

from real.programs import missing

SOURCE = Path(__file__).parents[1] / "collectors" / "fake_nvml.c"


def nvml_library(folder: Path) -> Path:
    """The library in a folder. Loaded by the driver's name, it is what the binding finds."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        missing("gcc is not installed: apt-get install gcc libc6-dev")
    path = folder / "libnvidia-ml.so.1"
    command = [str(compiler), "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", str(path), str(SOURCE)], check=True)
    return path

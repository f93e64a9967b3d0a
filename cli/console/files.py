"""Files that an operator names: one that holds a secret, whether one has changed, one that is written whole."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cli.console.errors import Failure


def secret_file(path: str | Path, place: str) -> str:
    """The text of a file that holds a secret, without blanks around it.

    Args:
        place: the key, variable or option that names the file, for the message.

    Raises:
        Failure: it cannot be read, or is empty.
    """
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{place}: cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if not text:
        raise Failure(f"{place}: {path} is empty: write the value into it")
    return text


def file_stamp(file: Path) -> tuple[int, int, int] | None:
    """What changes when a file does, a swapped symbolic link (a ConfigMap's) included; None: it is not there."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def write_whole(place: Path, parts: Iterable[bytes]) -> None:
    """The whole file or none, for its owner alone.

    Raises:
        Failure: it cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=place.absolute().parent, delete=False) as file:
            try:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(place)
            except BaseException:
                Path(file.name).unlink()
                raise
    except OSError as error:
        raise Failure(f"cannot write {place}: {error.strerror or error}") from error

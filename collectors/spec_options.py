"""Options behind a SPEC's address, never sent to the host: `scrape:http://host:9500/metrics#keep=site_.*&keep=other`."""

from collections.abc import Sequence
from urllib.parse import unquote

from collectors.collector import SourceError


def split_options(spec: str, address: str, known: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    """The address without its options, and every option's values. `%26` stands for a `&` within a value.

    Raises:
        SourceError: an option that is not known, or without a value.
    """
    address, _hash, text = address.partition("#")
    options: dict[str, list[str]] = {}
    for part in filter(None, text.split("&")):
        name, _equals, value = part.partition("=")
        if name not in known or not value:
            allowed = ", ".join(f"{option}=..." for option in known)
            raise SourceError(f"{spec}: {part!r} is no option of this source: use {allowed}")
        options.setdefault(name, []).append(unquote(value))
    return address, options

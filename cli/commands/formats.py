"""`foreshock formats`: what can be read."""

import click

from cli.console.output import JSON_OPTION, print_json, print_text
from parsers.registry import PARSERS


@click.command()
@JSON_OPTION
def formats(as_json: bool) -> None:
    """List the formats that can be read, each with a sample line."""
    entries = sorted(PARSERS.items())
    if as_json:
        print_json(
            [
                {"format": name, "shape": entry.shape, "description": entry.description, "sample": entry.sample}
                for name, entry in entries
            ]
        )
        return
    widest = max(len(name) for name, _entry in entries)
    for name, entry in entries:
        print_text(f"{name:{widest}}  {entry.description}")
        print_text(f"    {entry.sample}")

"""`foreshock prior export|import|update`: what clusters taught about signs, handed on without an event or a name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.console.errors import Failure
from cli.console.output import DB_OPTION, print_text
from cli.console.store import open_store

if TYPE_CHECKING:
    import sqlalchemy as sa


@click.group()
def prior() -> None:
    """What a site is scored by before it has outages of its own."""


@prior.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--db", "urls", multiple=True, required=True, metavar="URL", help="A cluster; may be given again.")
@click.option("--source", default="another site", show_default=True, help="What it says of where it comes from.")
@click.option("--alone", is_flag=True, help="From these clusters alone, not from the package's prior on.")
def export_command(file: Path, urls: tuple[str, ...], source: str, alone: bool) -> None:
    """Learn from the clusters and write two numbers a sign to FILE: no node, no event, no time."""
    from predictor.dataset.folds import NoDataError
    from predictor.hazard.prior import PriorError, packaged, parse_prior, to_json
    from predictor.live.prior import learned_prior

    engines = [open_store(url) for url in urls]
    try:
        text = to_json(learned_prior(engines, source, None if alone else packaged()))
        parse_prior(text)
        file.write_bytes(text)
    except (NoDataError, PriorError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}") from error
    print_text(f"{file}: {len(text)} bytes, from {len(engines)} cluster(s)")


@prior.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@DB_OPTION
def import_command(file: Path, url: str) -> None:
    """Check FILE and register it: it serves where no model that learned here does, and is a challenger elsewhere."""
    from predictor.dataset.labels import HORIZONS_H
    from predictor.hazard.prior import MOST_BYTES, PriorError, parse_prior
    from predictor.live.prior import NO_LOCAL, prior_model, register_priors

    try:
        with file.open("rb") as stream:
            found = parse_prior(stream.read(MOST_BYTES + 1))
    except PriorError as error:
        raise Failure(f"{file}: {error}") from error
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}") from error
    now = datetime.now(UTC)
    models = [prior_model(found, hours, now, NO_LOCAL) for hours in HORIZONS_H]
    engine = open_store(url)
    _tell(engine, register_priors(engine, models, now))


@prior.command("update")
@DB_OPTION
def update_command(url: str) -> None:
    """Let the package's prior take in what this site saw; `foreshock models list` shows how much of it is local."""
    from predictor.dataset.folds import NoDataError
    from predictor.hazard.prior import packaged
    from predictor.live.prior import update_prior

    engine = open_store(url)
    try:
        names = update_prior(engine, packaged(), datetime.now(UTC))
    except NoDataError as error:
        raise Failure(str(error)) from error
    _tell(engine, names)


def _tell(engine: sa.Engine, names: list[str]) -> None:
    """Each model, its role, and why it has that."""
    from store.models.registry import list_models

    with engine.connect() as connection:
        rows = [row for name in names for row in list_models(connection, ident=name)]
    for row in rows:
        print_text(f"{row['id']}: {row['role']} of {row['horizon_h']} h; {row['why']}")

"""`foreshock study`: what Foreshock sees in the real data sets of a folder, as a page that one run makes.

The sets are those of `SETS`, and `gwdg`: the tapes of GPU nodes that failed.
"""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from cli.console.errors import Failure
from cli.console.output import JSON_OPTION, print_json, print_text

NAMES = ("gwdg", "m100", "drives", "faults")


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="This set alone; may be given again.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a page with plots.")
@click.option("--markdown", "page_file", type=click.Path(path_type=Path), help="Write the page as Markdown.")
@click.option("--cache", type=click.Path(path_type=Path), help="Keep the loaded sets in this folder for the next run.")
@JSON_OPTION
def study(
    folder: Path,
    only: tuple[str, ...],
    html_file: Path | None,
    page_file: Path | None,
    cache: Path | None,
    as_json: bool,
) -> None:
    """Study the real data sets below DIR: gwdg, m100, drives, faults. Prints the page; a set that is absent is skipped.

    Of the tapes: what a site would have been told, and when. Of the others: backtests beside baselines.
    """
    from cli.study.backtests import SETS, run_set
    from cli.study.html_report import study_html
    from cli.study.page import real_page
    from cli.study.scoreboard import make_scoreboard
    from cli.study.scoreboard_page import scoreboard_page
    from cli.study.timelines import read_timelines

    wanted = [name for name in NAMES if not only or name in only]
    here = [name for name in wanted if (folder / name).is_dir()]
    if not here:
        raise Failure(f"{folder} holds none of {', '.join(wanted)}: name the folder that holds them")
    for name in (name for name in wanted if name not in here):
        print_text(f"Skipped: {folder / name} is not there", err=True)
    try:
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
        lines = read_timelines(folder / "gwdg") if "gwdg" in here else None
        board = []
        if lines is not None and lines.lines and not lines.skipped:
            board = scoreboard_page(make_scoreboard(folder / "gwdg", folder / "kernel" / "lines.jsonl"))
        reports = {name: run_set(SETS[name], folder / name, cache) for name in here if name in SETS}
        command = "foreshock study DIR" + "".join(f" --only {name}" for name in only)
        text = real_page(command, f"{datetime.now(UTC):%Y-%m-%d}", lines, board, reports)
        if page_file is not None:
            page_file.write_text(text, encoding="utf-8")
        if html_file is not None:
            html_file.write_text(study_html(lines, reports), encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot read or write {error.filename}: {error.strerror}") from error
    if as_json:
        print_json({"gwdg": None if lines is None else asdict(lines), **reports})
        return
    for line in text.splitlines():
        print_text(line)

"""The dashboard's entry: `streamlit run dashboard/app.py -- --server http://127.0.0.1:10870 [--token-file FILE]`.

`foreshock dashboard` starts it with the right settings. Of several clusters each comes as a `--cluster`: JSON with
`name`, `server`, and the files that its API wants.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from dashboard import answers
from dashboard.bar import clusters, search, sign_in, time_range
from dashboard.bar.sign_in import SignIn, SignInWay
from dashboard.client import ApiAddress, ApiClient, ApiProblem
from dashboard.panels import page, thread
from dashboard.panels.page import Site
from dashboard.views import cluster, collection, goodput, hints, incidents, models, node, repair, run, verdicts

# Streamlit leaves a sixth of the screen empty above the first line, fades parts that are being redrawn, its small print
# is paler than eyes need (3.9:1 where WCAG asks for 4.5:1), of a link or a card's head that is too long it hides the
# end, and which link the keys stand on it tells by a ground that is hardly another.
STYLE = """
[data-testid="stMainBlockContainer"] { padding: 4rem 2.5rem 2rem 2.5rem; }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] * { opacity: 1 !important; }
[data-testid="stCaptionContainer"] { color: color-mix(in srgb, currentcolor 78%, transparent) !important; }
[data-testid="stCaptionContainer"] :is(p, strong) { color: inherit !important; }
[data-testid="stPageLink-NavLink"] :is(span, p) { white-space: normal !important; overflow-wrap: anywhere; }
[data-testid="stMetricLabel"] :is(div, p) { white-space: normal !important; overflow: visible !important; }
a:focus-visible { outline: 2px solid currentcolor !important; outline-offset: 1px; }
h3 { font-size: 1.25rem !important; padding: 0.25rem 0 !important; }
"""
# A tremor before the large one; its colours stand on white and on black.
TREMOR = (
    '<path d="M2 17h9l3-5 4 10 4-17 5 23 4-11h8" fill="none" stroke="#d6403b" stroke-width="2.4" '
    'stroke-linecap="round" stroke-linejoin="round"/>'
)
LOGO = (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="190" height="32" viewBox="0 0 190 32">{TREMOR}'
    '<text x="48" y="23" font-family="sans-serif" font-size="20" font-weight="600" fill="#8d949c">Foreshock</text>'
    "</svg>"
)
# Streamlit would fetch an icon that is given by name from a server of its own choice.
ICON = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -4 41 41">{TREMOR}</svg>'


# Every page in the order of the menu: its name in the address, its module in `dashboard/views/`, its icon.
PAGES: dict[str, tuple[Callable[[Site], None], str]] = {
    "cluster": (cluster.page, ":material/grid_view:"),
    "verdicts": (verdicts.page, ":material/troubleshoot:"),
    "incidents": (incidents.page, ":material/emergency_home:"),
    "node": (node.page, ":material/dns:"),
    "goodput": (goodput.page, ":material/timelapse:"),
    "run": (run.page, ":material/view_timeline:"),
    "hints": (hints.page, ":material/campaign:"),
    "repair": (repair.page, ":material/build:"),
    "models": (models.page, ":material/model_training:"),
    "collection": (collection.page, ":material/sensors:"),
}


# The page of the bare address.
FIRST = "cluster"


def _first_by_name(first: StreamlitPage) -> StreamlitPage:
    """The first page under its own name: Streamlit knows the default page by the bare address alone, and says of
    `/cluster` that there is no such page.
    """
    return st.Page(lambda: st.switch_page(first), title=first.title, url_path=FIRST, visibility="hidden")


def _drawing(view: Callable[[Site], None], site: Callable[[], Site]) -> Callable[[], None]:
    """A page's function as Streamlit calls it."""
    return lambda: view(site())


def _site(api: ApiClient, pages: dict[str, StreamlitPage]) -> Site:
    return Site(
        api,
        pages["node"],
        verdict_page=pages["verdicts"],
        incident_page=pages["incidents"],
        goodput_page=pages["goodput"],
        run_page=pages["run"],
    )


_FILES = ("token_file", "ca_file", "cert_file", "key_file")


def arguments(argv: list[str]) -> argparse.Namespace:
    """The options of `foreshock dashboard`; the token comes in a file, so that no process list shows it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", action="append", type=json.loads, default=[], dest="clusters")
    parser.add_argument("--server")
    for name in _FILES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=Path)
    parser.add_argument("--insecure-http", action="store_true")
    parser.add_argument("--sign-in", choices=get_args(SignInWay), default="none")
    parser.add_argument("--proxy", action="append", default=[])
    parser.add_argument("--person-header", default=SignIn().person_header)
    parser.add_argument("--groups-header", default=SignIn().groups_header)
    return parser.parse_args(argv)


def places(given: argparse.Namespace) -> dict[str, tuple[ApiAddress, Path | None]]:
    """The address and the token's file of each cluster, by its name; of one that has none, by its address.

    Nothing of one cluster is handed to another: each has a client of its own, which follows no redirect.
    """
    found = {}
    for one in given.clusters or [vars(given)]:
        token, ca, cert, key = (None if one.get(name) is None else Path(one[name]) for name in _FILES)
        address = ApiAddress(one["server"], None, ca, cert, key, one.get("insecure_http", False))
        found[str(one.get("name") or address.server)] = (address, token)
    return found


@st.cache_resource(show_spinner=False, on_release=ApiClient.close)
def _client(address: ApiAddress, token_file: Path | None, _changed: tuple[float, ...]) -> ApiClient:
    """One connection pool for every session; a token or certificate that changes makes a new one."""
    token = token_file.read_text(encoding="utf-8").strip() if token_file else None
    if token == "":
        raise ApiProblem(f"The token file {token_file} is empty: write the token into it.")
    return ApiClient(replace(address, token=token), fresh_s=answers.FRESH_S)


def client(address: ApiAddress, token_file: Path | None = None) -> ApiClient:
    """The API's client, with the token of a file.

    Raises:
        ApiProblem: a file cannot be read or is empty, or the address is none.
    """
    files = [file for file in (token_file, address.ca_file, address.cert_file, address.key_file) if file is not None]
    try:
        return _client(address, token_file, tuple(file.stat().st_mtime for file in files))
    except (OSError, UnicodeDecodeError) as error:
        named = ", ".join(map(str, files))
        raise ApiProblem(f"The token file {named} cannot be read ({error}): correct --token-file.") from error


@st.cache_resource(show_spinner=False)
def _settle() -> None:
    """Keep modules and their like, which nobody gives up, out of every search for garbage: all sessions wait for it."""
    gc.freeze()


def main(argv: list[str]) -> None:
    """The frame around the pages."""
    st.set_page_config(page_title="Foreshock", page_icon=ICON, layout="wide")
    st.html(f"<style>{STYLE}</style>")
    st.logo(LOGO, size="large")
    given = arguments(argv)
    known = places(given)
    way = SignIn(given.sign_in, tuple(given.proxy), given.person_header, given.groups_header)
    person = way.headers()
    if person is None:
        sign_in.invite(way)
        return
    bar = st.container(horizontal=True, horizontal_alignment="right")
    with bar:
        own = clusters.chosen(known)
    if own is None:
        return
    address, token_file = known[own]
    with page.troubles():
        api = client(address, token_file)
        if person:
            api = api.acting_for(person)
        pages: dict[str, StreamlitPage] = {}
        for name, (view, icon) in PAGES.items():
            pages[name] = st.Page(
                _drawing(view, lambda: _site(api, pages)),
                title=name.capitalize(),
                icon=icon,
                url_path="" if name == FIRST else name,
                default=name == FIRST,
            )
        chosen = st.navigation([*pages.values(), _first_by_name(pages[FIRST])], position="top")
        if person:
            sign_in.badge(way, api)
        thread.forget(chosen.url_path)
        time_range.keep(chosen.url_path)
        with bar:
            time_range.draw(api)
            search.draw(_site(api, pages), pages, chosen.url_path)
        chosen.run()
        search.key()
    st.caption(f"served by `{address.server}`")  # the operator wrote it: an address, not a link
    _settle()  # last: what the first page that was drawn has imported is among it


if __name__ == "__main__":
    main(sys.argv[1:])

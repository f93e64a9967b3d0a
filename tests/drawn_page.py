"""A page of the dashboard as Streamlit's own test runner draws it, and what stands on it."""

from collections.abc import Callable
from functools import cache
from typing import Any

from real.patience import patience
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

# Every page would look through all installed packages for components of theirs, which never change here.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
Opened = Callable[..., AppTest]


def _draw(site, view):  # type: ignore[no-untyped-def]  # the runner takes this text alone, without the imports
    """The script of one page: the test runner cannot turn to a page that is a function."""
    import importlib

    importlib.import_module(f"dashboard.views.{view}").page(site)


def draw_page(site: Any, page: str, **query: str) -> AppTest:
    """One page of a site, drawn once."""
    app = AppTest.from_function(_draw, default_timeout=patience(30), kwargs={"site": site, "view": page})
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def seen(app: AppTest) -> str:
    """All that stands on the page, without Markdown's escapes."""
    parts = [*app.markdown, *app.caption, *app.error, *app.warning, *app.info, *app.success, *app.subheader]
    return "\n".join(str(part.value) for part in parts).replace("\\", "")


def raw(app: AppTest) -> str:
    """The same with Markdown's escapes: what the browser is handed."""
    parts = [*app.markdown, *app.caption, *app.error, *app.warning, *app.info, *app.success, *app.subheader]
    told = [str(text) for metric in app.metric for text in (metric.proto.help, metric.value)]
    return "\n".join([*(str(part.value) for part in parts), *told])


def failing(app: AppTest) -> list[str]:
    """The tracebacks on a page."""
    return [f"{found.message} {found.stack_trace}" for found in app.exception]

"""What the served pages have in common: their style, their small parts, and the answer that carries them.

Every text goes through `html_text`; and where one slipped through, the browser runs nothing: the answer's policy allows
this one style sheet alone.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import Response

from store import html_page
from store.visible_text import html_text

_STYLE = (
    "body{max-width:60rem}a{color:var(--c1)}p,li{overflow-wrap:anywhere}p.answer{color:var(--ink);font-size:1.1rem;"
    "font-weight:600;border-left:5px solid var(--c4);padding:.5rem .8rem;background:var(--mark)}"
    "p.error{border-color:var(--c0)}p.warning{border-color:var(--c2)}p.success{border-color:var(--c3)}"
    "p.info{border-color:var(--c1)}.text td,.text th{text-align:left}.text td{overflow-wrap:anywhere;min-width:6.5em}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .9rem;margin:.6rem 0}dt{color:var(--dim)}"
    "dd{margin:0;overflow-wrap:anywhere}"
    "@page{margin:14mm}@media print{:root{--ink:#000;--dim:#333;--line:#999;--paper:#fff;--mark:#fff;--c0:#a00;"
    "--c1:#000;--c2:#840;--c3:#060;--c4:#555}body{max-width:none;margin:0;padding:0;font-size:10pt}"
    "table{display:table;width:100%;font-size:9pt}tr,dl,.answer{break-inside:avoid}h2{break-after:avoid}"
    "thead{display:table-header-group}.screen{display:none}}"
)
_SHEET = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def document(title: str, sections: Iterable[str], style: str = "", refresh_s: int | None = None) -> Response:
    """The answer that carries a page.

    Args:
        refresh_s: after how many seconds a browser asks again by itself.
    """
    head = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    head += f'<meta http-equiv="refresh" content="{refresh_s}">' if refresh_s else ""
    text = html_page.page(title, sections, _STYLE + style, head)
    sheet = _SHEET.search(text)
    digest = hashlib.sha256(sheet[1].encode() if sheet else b"").digest()
    allowed = f"style-src 'sha256-{base64.b64encode(digest).decode()}'"
    headers = {
        "Content-Security-Policy": f"default-src 'none'; {allowed}; base-uri 'none'; frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


def heading(text: str) -> str:
    """The first line of a page."""
    return f"<h1>{html_text(text)}</h1>"


def answer(level: str, text: str) -> str:
    """The answer in one sentence; `level`: error, warning, success or info."""
    return f'<p class="answer {html_text(level)}">{html_text(text)}</p>'


def line(text: str, place: str = "") -> str:
    """A sentence; `place` is `screen` for what is of no use on paper."""
    return f'<p class="{html_text(place)}">{html_text(text)}</p>' if place else f"<p>{html_text(text)}</p>"


def facts(found: Iterable[tuple[str, str]]) -> str:
    """Names and what they are; what is empty is left out."""
    rows = (f"<dt>{html_text(name)}</dt><dd>{html_text(value)}</dd>" for name, value in found if value)
    return f"<dl>{''.join(rows)}</dl>"


def text_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of words, to the left."""
    return f'<div class="text">{html_page.table(header, rows)}</div>'

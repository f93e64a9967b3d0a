"""A page that stands alone: its style, tables, sections. No scripts, nothing from elsewhere, light and dark."""

from collections.abc import Iterable, Sequence
from typing import Any

from store import svg_plot
from store.visible_text import html_text

_STYLE = (
    ":root{--ink:#1f2428;--dim:#59636e;--line:#e3e6ea;--paper:#fff;--c0:#d6403b;--c1:#2f6fb5;--c2:#c98500;--c3:#2e8b57;"
    "--c4:#9aa4af;--c5:#7b52b9;--c6:#178a94;--mark:#fff4e0}@media(prefers-color-scheme:dark){:root{--ink:#e3e6ea;"
    "--dim:#9aa4af;--line:#333a42;--paper:#15191d;--c0:#ff6b64;--c1:#6aa9f0;--c2:#e8b04b;--c3:#63c08d;--c4:#6b7580;--c5:#b39ddb;--c6:#5fc4cd;"
    "--mark:#3a2f1a}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:var(--ink);"
    "background:var(--paper)}h1{font-size:1.6rem;margin-bottom:.2rem}h2{margin:2.2rem 0 .2rem;font-size:1.15rem}"
    "p{color:var(--dim);margin:.2rem 0 .8rem;max-width:60rem}p.verdict{color:var(--ink);font-size:1.05rem}"
    "p.doubt{background:var(--mark);color:var(--ink);padding:.6rem .9rem;border-left:4px solid var(--c2)}"
    "table{border-collapse:collapse;margin:.5rem 0 1rem;font-variant-numeric:tabular-nums;display:block;"
    "overflow-x:auto}"
    "td,th{padding:.25rem .8rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}"
    "th{color:var(--dim);font-weight:600}td:first-child,th:first-child{text-align:left}small{color:var(--dim);white-space:nowrap}"
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:0 2rem}"
    "p.legend{font-size:12px;display:flex;gap:1.2rem;flex-wrap:wrap}.key{display:inline-block;width:22px;height:8px;"
    "margin-right:.4rem}.none{stroke:none;fill:none}"
)


def page(title: str, sections: Iterable[str], style: str = "", head: str = "") -> str:
    """A whole HTML page; `style` is what its own marks need beyond the common style sheet, `head` more of its head."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html_text(title)}</title>'
        f"{head}<style>{_STYLE}{svg_plot.STYLE}{style}</style></head>\n<body>{''.join(sections)}</body></html>\n"
    )


def figure(value: Any) -> str:
    """A figure for people; a dash where there is none."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return html_text(str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table."""
    head = "".join(f"<th>{html_text(name)}</th>" for name in header)
    lines = "\n".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n{lines}</table>\n"


def _cell(value: Any) -> str:
    """A figure, or a figure and its interval as (value, [low, high])."""
    if not isinstance(value, tuple):
        return figure(value)
    middle, sure = value
    return figure(middle) if sure is None else f"{figure(middle)}<br><small>{sure[0]:.3g} to {sure[1]:.3g}</small>"


def section(title: str, said: str, *parts: str) -> str:
    """A heading, a sentence for an operator, and what it speaks of (HTML)."""
    return f"<h2>{html_text(title)}</h2><p>{html_text(said)}</p>{''.join(parts)}\n"

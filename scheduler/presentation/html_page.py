"""An HTML page that needs nothing else: for a report, or for a colleague without access.

It has no script and loads nothing. What users wrote is shown as text. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from scheduler.presentation.render import printable

STYLE = """\
:root { color-scheme: light dark; --text: #18202a; --muted: #556070; --line: #d8dde4;
  --ground: #f4f6f8; --surface: #fff; --bar: #0a58a8; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e9ef; --muted: #9ca8b6; --line: #2b333d;
  --ground: #0f1318; --surface: #171c23; --bar: #5aa2ee; } }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h1 small { font-size: .8rem; color: var(--muted); margin-left: .6rem; }
h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
section { background: var(--surface); border: 1px solid var(--line); border-radius: 9px;
  padding: .9rem 1.1rem; margin-bottom: 1rem; }
dl { display: grid; grid-template-columns: fit-content(40%) minmax(55%, 1fr);
  gap: .25rem 1rem; margin: 0; }
dt, footer { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.bar { height: 8px; border-radius: 4px; background: var(--line); margin-bottom: .8rem; }
.bar i { display: block; height: 100%; border-radius: 4px; background: var(--bar); }
pre { overflow-x: auto; margin: 0; font-size: .85rem; }
@media print { body { background: none; } section { break-inside: avoid; } }
"""


def html_page(title: str, parts: Iterable[str], style: str = "") -> str:
    """`parts` are HTML; `style` is CSS beside that of all pages."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, content: str) -> Iterator[str]:
    if content:
        yield f"<section><h2>{html_text(title)}</h2>\n{content}</section>"


def html_text(text: str) -> str:
    return escape(printable(text))

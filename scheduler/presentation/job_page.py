"""A job as one HTML page that needs nothing else: for a report, or for a colleague without access.

It has no script and loads nothing. What users wrote is shown as text. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from scheduler.presentation import outlook, story, views
from scheduler.presentation.render import clock, printable
from scheduler.v1 import scheduler_pb2 as pb

_STYLE = """\
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


def job_page(reply: pb.GetJobReply, log: Sequence[str], now: float, server: str) -> str:
    """`log`: its last lines; `server`: the address of who told all this."""
    job = reply.job
    name = _text(job.spec.name)
    done = 100 * job.epochs_done / job.max_epochs if job.max_epochs else 0
    told = ((clock(fact.at, now), story.sentence(fact)) for fact in reply.story)
    parts = [
        f"<h1><bdi>{name}</bdi> <small>{_text(job.state)}</small></h1>",
        f'<section><div class="bar"><i style="width: {min(100.0, done):.1f}%"></i></div>',
        f"{_pairs(views.about(job, now))}</section>",
        *_section("Story", _pairs(told) if reply.story else ""),
        *_section("Learned", _pairs(outlook.learned_fields(reply.learned))),
        *_section("Options", _pairs(views.options(job.spec))),
        *_section(f"Log, the last {len(log)} lines", _log(log)),
        f"<footer>{_text(f'As {server} told it at {clock(now, 0)}.')}</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, content: str) -> Iterator[str]:
    if content:
        yield f"<section><h2>{_text(title)}</h2>\n{content}</section>"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = [f"<dt>{_text(name)}</dt><dd><bdi>{_text(value)}</bdi></dd>" for name, value in pairs]
    return f"<dl>{''.join(rows)}</dl>" if rows else ""


def _log(lines: Sequence[str]) -> str:
    return f"<pre>{chr(10).join(map(_text, lines))}</pre>" if lines else ""


def _text(text: str) -> str:
    return escape(printable(text))

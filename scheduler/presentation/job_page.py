"""A job as one HTML page that needs nothing else: for a report, or for a colleague without access.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.presentation import outlook, story, views
from scheduler.presentation.html_page import html_page, html_text, section
from scheduler.presentation.render import clock
from scheduler.v1 import scheduler_pb2 as pb


def job_page(reply: pb.GetJobReply, log: Sequence[str], now: float, server: str) -> str:
    """`log`: its last lines; `server`: the address of who told all this."""
    job = reply.job
    name = html_text(job.spec.name)
    done = 100 * job.epochs_done / job.max_epochs if job.max_epochs else 0
    told = ((clock(fact.at, now), story.sentence(fact)) for fact in reply.story)
    parts = [
        f"<h1><bdi>{name}</bdi> <small>{html_text(job.state)}</small></h1>",
        f'<section><div class="bar"><i style="width: {min(100.0, done):.1f}%"></i></div>',
        f"{_pairs(views.about(job, now))}</section>",
        *section("Story", _pairs(told) if reply.story else ""),
        *section("Learned", _pairs(outlook.learned_fields(reply.learned))),
        *section("Options", _pairs(views.options(job.spec))),
        *section(f"Log, the last {len(log)} lines", _log(log)),
        f"<footer>{html_text(f'As {server} told it at {clock(now, 0)}.')}</footer>",
    ]
    return html_page(job.spec.name, parts)


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = [
        f"<dt>{html_text(name)}</dt><dd><bdi>{html_text(value)}</bdi></dd>" for name, value in pairs
    ]
    return f"<dl>{''.join(rows)}</dl>" if rows else ""


def _log(lines: Sequence[str]) -> str:
    return f"<pre>{chr(10).join(map(html_text, lines))}</pre>" if lines else ""

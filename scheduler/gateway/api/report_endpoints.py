"""Jobs compared, as a file to keep: for a report, or for a colleague without access."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from scheduler.gateway.api import experiment_endpoints
from scheduler.gateway.api.curves import CurveChoice, curves
from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.gateway.api.experiment_endpoints import comparison_of, jobs_to_compare, kept_series
from scheduler.gateway.problems import Problem
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.presentation.comparison_page import ReportChoices, comparison_page, is_epoch
from scheduler.presentation.records import Record
from scheduler.v1 import scheduler_pb2 as pb

METRICS = 4  # that are drawn if none is named
POINTS_ALL = 60_000  # of all curves, so that the file stays small
POINTS, POINTS_LEAST = 500, 50  # of a curve
_LATER = asyncio.Semaphore(1)  # reports that are made at a time


async def export(asked: Asked) -> Any:
    choices = _choices(asked)
    jobs = await jobs_to_compare(asked)
    store, given = kept_series(asked), asked.given
    host = asked.request.headers.get("host", "")
    async with _LATER:
        content = await asyncio.to_thread(
            _page, store, jobs, given.get("metric"), choices, given.get("all", False), host
        )
    headers = {
        "Content-Disposition": 'attachment; filename="compared.html"',
        "Cache-Control": "no-store",
    }
    return Response(content, headers=headers, media_type="text/html")


def _choices(asked: Asked) -> ReportChoices:
    given = asked.given
    x = given.get("x", "") or "step"
    if x not in ("step", "time", "epoch"):
        raise Problem(400, f"x {x!a}: must be step, time or epoch", "x")
    for name, least, most in (("smooth", 0.0, 0.999), ("opacity", 0.05, 1.0)):
        if not least <= given.get(name, most) <= most:
            raise Problem(400, f"{name} {given[name]}: must be {least:g} to {most:g}", name)
    return ReportChoices(
        x,
        given.get("smooth", 0.0),
        given.get("logx", False),
        given.get("logy", False),
        given.get("hue", ""),
        given.get("pattern", ""),
        given.get("cols", ""),
        given.get("hide", ()),
        given.get("opacity", 1.0),
    )


def _page(
    store: SeriesStore | None,
    jobs: Sequence[pb.Job],
    metrics: Sequence[str] | None,
    choices: ReportChoices,
    everything: bool,
    host: str,
) -> str:
    record = comparison_of(store, jobs, everything)
    found = list[Record]()
    if store:
        names = [metric["name"] for metric in record["metrics"]]
        results = [each["name"] for each in record["metrics"] if each["rises"] is not None]
        shown = metrics or (results or names)[:METRICS]
        if choices.x == "epoch":
            shown = [*shown, *(name for name in names if is_epoch(name))]
        if shown:
            most = max(POINTS_LEAST, min(POINTS, POINTS_ALL // (len(jobs) * len(shown))))
            choice = CurveChoice(shown, None, None, None, None, None, most)
            found = curves(store, [job.id for job in jobs], choice)["curves"]
    return comparison_page(record, found, choices, time.time(), host)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/compare/export",
        export,
        "Jobs compared, as one HTML file that needs nothing else: curves, what was set differently,"
        " and what each metric has come to.",
        {"type": "string"},
        (
            *experiment_endpoints.COMPARED,
            Parameter("metric", "that is drawn; default: the first four", several=True),
            Parameter("x", "step, time or epoch"),
            Parameter("smooth", "the weight of an exponential mean; default 0", "number"),
            Parameter("logx", "a logarithmic axis", "boolean"),
            Parameter("logy", "a logarithmic axis", "boolean"),
            Parameter("opacity", "of the curves; default 1", "number"),
            Parameter("hue", "the key that says which colour a job has; default: its own"),
            Parameter("pattern", "the key that says which dashes a job has"),
            Parameter("cols", "a key: a plot for each of its values"),
            Parameter("hide", "the id of a job without curves", several=True),
        ),
        type="text/html",
    ),
)

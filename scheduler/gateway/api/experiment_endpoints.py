"""Experiments: a table of jobs with what they set and measured, and jobs compared.

Which jobs a person may see is what the daemon lists for their token.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.gateway.api.endpoint import Asked, Endpoint, Parameter
from scheduler.gateway.api.job_endpoints import label_pair
from scheduler.gateway.api.job_metrics import metrics_of, sent
from scheduler.gateway.api.schemas import (
    ANY,
    BOOLEAN,
    INTEGER,
    NUMBER_OR_NULL,
    STEP,
    STRING,
    list_of,
    map_of,
    object_of,
)
from scheduler.gateway.problems import Problem
from scheduler.gateway.series.series_store import SeriesStore
from scheduler.gateway.series.summaries import JobSummary
from scheduler.presentation import comparison, experiment_table, records
from scheduler.presentation.experiment_table import JobRow, SearchError
from scheduler.presentation.records import Record
from scheduler.v1 import scheduler_pb2 as pb

LIMIT, LIMIT_MAX = 200, 1000
JOBS_MAX = 2000  # of a table: the newest
COMPARED_MAX = 100
_PAGE = 1000
NO_SERIES = "this gateway keeps no series: what jobs logged is not known here"


# --- the table ----------------------------------------------------------------------------------


async def list_experiments(asked: Asked) -> Any:
    given = asked.given
    jobs, total = await _jobs(asked)
    return await asyncio.to_thread(_table, kept_series(asked), jobs, total, given)


def kept_series(asked: Asked) -> SeriesStore | None:
    """Without one, there is still what was submitted."""
    store = asked.kept_series
    return store if store is not None and store.is_open else None


def _told(store: SeriesStore | None, jobs: Sequence[pb.Job]) -> Mapping[str, JobSummary]:
    return store.summaries([job.id for job in jobs]) if store else defaultdict(JobSummary)


def _remarks(store: SeriesStore | None) -> list[str]:
    return [] if store else [NO_SERIES]


async def _jobs(asked: Asked) -> tuple[list[pb.Job], int]:
    """The newest ones that the caller may see, and how many there are."""
    given, found, cursor = asked.given, list[pb.Job](), ""
    while True:
        request = pb.ListJobsRequest(
            all_users=given.get("all_users", False),
            limit=_PAGE,
            states=given.get("state", ()),
            project=given.get("project", ""),
            experiment=given.get("experiment", ""),
            labels=[label_pair(text) for text in given.get("label", ())],
            user=given.get("user", ""),
            cursor=cursor,
        )
        reply = await asked.daemon.ask("Scheduler/ListJobs", request, pb.ListJobsReply, asked.token)
        found += reply.jobs
        cursor = reply.next_cursor
        if not cursor or len(found) >= JOBS_MAX:
            return found[:JOBS_MAX], reply.total


class KnownRows:
    """Rows of jobs of which nothing has changed: people search again at each key. For any
    thread."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[pb.Job, JobSummary, JobRow]] = {}

    def row(self, store: SeriesStore | None, job: pb.Job, told: JobSummary) -> JobRow:
        known = self._rows.get(job.id)
        if known and known[0] == job and known[1] == told:
            return known[2]
        made = experiment_table.row(
            records.job(job),
            told.params,
            told.tags,
            told.description,
            metrics_of(store, told) if store else {},
        )
        self._rows[job.id] = job, told, made
        while len(self._rows) > JOBS_MAX:
            self._rows.pop(next(iter(self._rows)), None)
        return made


_known_rows = KnownRows()


def _table(
    store: SeriesStore | None, jobs: Sequence[pb.Job], total: int, given: Mapping[str, Any]
) -> Record:
    told = _told(store, jobs)
    rows = [_known_rows.row(store, job, told[job.id]) for job in jobs]
    known = experiment_table.columns(rows)
    chosen = given.get("column") or experiment_table.choose(known, len(rows))
    order = given.get("order", "") or "submitted_at"
    try:
        found = experiment_table.search(rows, given.get("search", ""))
    except SearchError as error:
        raise Problem(400, str(error), "search") from None
    found = experiment_table.ordered(found, order, given.get("ascending", False))
    limit = given.get("limit", LIMIT)
    page, cursor = experiment_table.page_of(found, given.get("cursor", ""), limit)
    return {
        "columns": chosen,
        "known": known,
        "rows": [
            {
                "id": row.id,
                "name": row.values["name"],
                "state": row.values["state"],
                "star": row.values.get("annotation.star") == "yes",
                "values": [sent(row.values.get(name)) for name in chosen],
            }
            for row in page
        ],
        "total": len(found),
        "not_looked_at": total - len(jobs),
        "next_cursor": cursor,
        "remarks": _remarks(store),
    }


# --- compared -----------------------------------------------------------------------------------


async def compare(asked: Asked) -> Any:
    jobs = await jobs_to_compare(asked)
    everything = asked.given.get("all", False)
    return await asyncio.to_thread(comparison_of, kept_series(asked), jobs, everything)


async def jobs_to_compare(asked: Asked) -> list[pb.Job]:
    """As they were named. Raises Problem."""
    wanted = asked.given.get("job", ())
    if not wanted:
        raise Problem(400, "job: which jobs are to be compared?", "job")
    if len(wanted) > COMPARED_MAX:
        raise Problem(400, f"job: {COMPARED_MAX} jobs can be compared at once", "job")
    request = pb.ListJobsRequest(jobs=wanted, limit=COMPARED_MAX)
    reply = await asked.daemon.ask("Scheduler/ListJobs", request, pb.ListJobsReply, asked.token)
    return _as_asked(wanted, reply.jobs)


def _as_asked(wanted: Sequence[str], jobs: Sequence[pb.Job]) -> list[pb.Job]:
    """In the order in which they were named, by id, end of an id, or name."""

    def place(job: pb.Job) -> int:
        names = [
            at
            for at, text in enumerate(wanted)
            if job.id.endswith(text.lower()) or job.spec.name == text
        ]
        return names[0] if names else len(wanted)

    return sorted(jobs, key=place)


def comparison_of(store: SeriesStore | None, jobs: Sequence[pb.Job], everything: bool) -> Record:
    told = _told(store, jobs)
    shown = [records.job(job) for job in jobs]
    flats = [
        comparison.configuration(job, told[job["id"]].params, told[job["id"]].tags) for job in shown
    ]
    metrics = [metrics_of(store, told[job["id"]]) if store else {} for job in shown]
    return {
        "jobs": [
            {
                **{name: job[name] for name in ("id", "name", "user", "project", "experiment")},
                "state": job["state"],
                "submitted_at": job["submitted_at"],
                "started_at": job["started_at"],
                "ended_at": job["ended_at"],
                "epochs_done": job["epochs_done"],
                "description": told[job["id"]].description,
                "attempts": sorted({series.attempt for series, _ in told[job["id"]].series}),
            }
            for job in shown
        ],
        **comparison.config_record([job["id"] for job in shown], flats, everything, sent),
        "metrics": [
            {
                "name": name,
                "rises": comparison.rises(name) if comparison.is_result(name) else None,
                "values": {
                    job["id"]: {key: sent(value) for key, value in record.items()}
                    for job, record in zip(shown, found, strict=True)
                    if record is not None
                },
            }
            for name, found in comparison.shared(metrics)
        ],
        "code": _packages([job["spec"]["code"] for job in shown]),
        "remarks": _remarks(store),
    }


def _packages(ids: Sequence[str]) -> str:
    """Of all jobs compared, in a line; the commands show what is in them."""
    if not any(ids):
        return "no package"
    if len(set(ids)) == 1:
        return f"the same package, {ids[0][7:19]}"
    return ", ".join(each[7:19] or "no package" for each in ids) + ": --code shows the differences"


# --- what there is ------------------------------------------------------------------------------


_METRIC = object_of(
    last=ANY, min=ANY, max=ANY, last_step=STEP, min_step=STEP, max_step=STEP, points=INTEGER
)

COMPARED = (
    Parameter("job", "by id, end of an id, or name", several=True),
    Parameter("all", "also what is the same in all of them", "boolean"),
)
ENDPOINTS = (
    Endpoint(
        "GET",
        "/experiments",
        list_experiments,
        "A table with a row for each job: what was set for it, what it logged, and what that came "
        "to. Yours, or with `all_users` those of all users.",
        object_of(
            columns=list_of(STRING),
            known=list_of(object_of(name=STRING, jobs=INTEGER, different=INTEGER)),
            rows=list_of(
                object_of(id=STRING, name=STRING, state=STRING, star=BOOLEAN, values=list_of(ANY))
            ),
            total=INTEGER,
            not_looked_at=INTEGER,
            next_cursor=STRING,
            remarks=list_of(STRING),
        ),
        (
            Parameter("all_users", "the jobs of all users", "boolean"),
            Parameter("user", "the jobs of this user"),
            Parameter("state", "e.g. FINISHED", several=True),
            Parameter("project", "of this project"),
            Parameter("experiment", "of this experiment"),
            Parameter("label", "with this label: KEY=VALUE", several=True),
            Parameter(
                "column",
                "e.g. param.lr, last.loss, min.loss, option.batch_size; `known` has all. None: "
                "what differs, and what was measured",
                several=True,
            ),
            Parameter("search", "words, and conditions such as lr<=0.01 and min.loss<0.3"),
            Parameter("order", "a column; default submitted_at"),
            Parameter("ascending", "the smallest, or oldest, first", "boolean"),
            Parameter("cursor", "`next_cursor` of the page before"),
            Parameter("limit", f"at most so many; default {LIMIT}", "integer", False, 1, LIMIT_MAX),
        ),
    ),
    Endpoint(
        "GET",
        "/compare",
        compare,
        "Jobs compared: what was set differently, and what each metric that at least two of them "
        "have has come to. Values are by the id of the job.",
        object_of(
            jobs=list_of(
                object_of(
                    id=STRING,
                    name=STRING,
                    user=STRING,
                    project=STRING,
                    experiment=STRING,
                    state=STRING,
                    submitted_at=NUMBER_OR_NULL,
                    started_at=NUMBER_OR_NULL,
                    ended_at=NUMBER_OR_NULL,
                    epochs_done=INTEGER,
                    description=STRING,
                    attempts={**list_of(INTEGER), "description": "those that have logged"},
                )
            ),
            config=list_of(
                object_of(key=STRING, differs=BOOLEAN, values={"type": "object"}),
            ),
            equal=INTEGER,
            metrics=list_of(
                object_of(
                    name=STRING,
                    rises={"type": ["boolean", "null"], "description": "null: it is no result"},
                    values=map_of(_METRIC),
                )
            ),
            code=STRING,
            remarks=list_of(STRING),
        ),
        COMPARED,
    ),
)

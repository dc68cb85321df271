"""Entries and deliveries, as a relay makes them."""

from __future__ import annotations

import json
import time
from typing import Any

from scheduler.gateway.series.intake import SentEntries, Taken
from scheduler.gateway.series.reading import Points
from scheduler.gateway.series.series_store import SeriesStore
from tests.support import DEADLINE_SECONDS

SECOND = 10**9
NOW = time.time()
NOW_NS = int(NOW) * SECOND


def metric(name: str, value: object, step: int | None = None, at: int = NOW_NS) -> list[Any]:
    return ["metrics", {}, name, at, step, value]


def entries(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def deliver(
    store: SeriesStore,
    *records: object,
    first: int = 0,
    job: str = "a",
    attempt: int = 1,
    spool: str = "s",
    now: float = NOW,
) -> Taken:
    delivery = SentEntries(job, attempt, spool, first, entries(*records), now)
    return store.deliver(delivery).result(DEADLINE_SECONDS)


def rows(found: Points) -> list[tuple[int, int, Any]]:
    return list(zip(found.times.tolist(), found.steps.tolist(), found.values.tolist(), strict=True))


def stored(store: SeriesStore, job: str = "a") -> dict[str, list[tuple[int, int, Any]]]:
    """The points of a job by field."""
    series = store.series([job])
    found = store.points([each.id for each in series])
    return {each.field: rows(found[each.id]) for each in series}

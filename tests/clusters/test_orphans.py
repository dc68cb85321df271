from __future__ import annotations

from collections.abc import Collection

import structlog

from scheduler.clusters.orphans import Orphans
from scheduler.core.model import Event, JobId, Observed, PodState
from tests.builders import job, node, observation, pod, share, with_run

A = with_run(job("a"), share())
GHOST = with_run(job("ghost"), share(gpu=1))


class Rows:
    """Which jobs have a row, and which were asked for."""

    def __init__(self, *jobs: str) -> None:
        self.jobs, self.asked = set(jobs), list[set[str]]()

    def known(self, job_ids: Collection[JobId]) -> set[JobId]:
        self.asked.append(set(job_ids))
        return {job_id for job_id in job_ids if job_id in self.jobs}


def marked(rows: Rows, *looks: Observed) -> list[Observed]:
    told: list[Event] = []
    orphans = Orphans(told.append, rows.known)
    for each in looks:
        orphans.put(each)
    return [event for event in told if isinstance(event, Observed)]


def test_a_look_that_shows_known_jobs_only_stays_as_it_is_and_rows_are_asked_once() -> None:
    first, rows = observation(pod(A)), Rows("a")
    (same, _) = marked(rows, first, observation(pod(A)))
    assert same is first
    assert rows.asked == [{"a"}]


def test_a_pod_whose_job_has_no_row_is_an_orphan_and_its_gpu_is_avoided() -> None:
    (seen,) = marked(Rows("a"), observation(pod(A), pod(GHOST), nodes=[node(2)]))
    assert [p.orphan for p in seen.pods] == [False, True]
    assert [gpu.fault for gpu in seen.nodes[0].gpus] == [
        "",
        "job ghost is on it, but the database does not know that job",
    ]


def test_a_gpu_whose_orphan_is_over_is_used_again() -> None:
    (seen,) = marked(Rows(), observation(pod(GHOST, PodState.SUCCEEDED), nodes=[node(2)]))
    assert seen.pods[0].orphan
    assert seen.nodes[0].usable == node(2).usable


def test_whoever_is_submitted_again_is_no_orphan_any_more() -> None:
    told: list[Event] = []
    rows = Rows()
    orphans = Orphans(told.append, rows.known)
    orphans.put(observation(pod(GHOST)))
    rows.jobs.add("ghost")
    orphans.put(observation(pod(GHOST)))
    assert [event.pods[0].orphan for event in told if isinstance(event, Observed)] == [True, False]


def test_an_orphan_is_told_of_once() -> None:
    with structlog.testing.capture_logs() as logs:
        marked(Rows(), observation(pod(GHOST)), observation(pod(GHOST)))
    assert [(line["event"], line["job_id"], line["attempt"]) for line in logs] == [
        ("orphan_found", "ghost", 1)
    ]

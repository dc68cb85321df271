"""The job service, as a training job meets it: answers are committed, nothing false gets in."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest

from scheduler.api.trainings import PROFILES_MAX
from scheduler.core.model import JobId, RunPhase
from scheduler.v1 import scheduler_pb2 as pb
from tests.serving import Serving, bearer, by, of, refused
from tests.support import eventually


def _ended(job_id: str, epoch: int, **fields: Any) -> pb.EndEpochRequest:
    fields = {"job_id": job_id, "attempt": 1, "epoch": epoch, **fields}
    return pb.EndEpochRequest(profiles=[pb.Profile(**fields)])


def _start(job_id: str, epoch: int, attempt: int = 1, rank: int = 0) -> pb.StartEpochRequest:
    return pb.StartEpochRequest(job_id=job_id, attempt=attempt, epoch=epoch, rank=rank)


def test_an_acknowledged_epoch_is_on_disk_with_where_it_was_measured(served: Serving) -> None:
    job = served.running(gpus_min=2, gpus_max=2, memory_mib=4000)
    other = served.running("other", memory_mib=4000)
    request = _ended(job.id, 1, epoch_seconds=2.5, step_seconds=0.1, memory_mib=300, gpu_util=0.5)
    reply = served.jobs.EndEpoch(request, metadata=of(job), timeout=10)
    assert reply.epochs_done == 1
    (kept,) = served.reader.profiles(job.id, 10)
    assert (kept.epoch, kept.epoch_seconds, kept.memory_mib) == (1, 2.5, 300)
    assert kept.placement == "pretendedx2"
    assert kept.beside == (other.id,)
    assert kept.at > job.submitted_at


def test_several_epochs_come_in_one_report(served: Serving) -> None:
    job = served.running()
    request = pb.EndEpochRequest(
        profiles=[pb.Profile(job_id=job.id, attempt=1, epoch=epoch) for epoch in (1, 2, 3)]
    )
    assert served.jobs.EndEpoch(request, metadata=of(job), timeout=10).epochs_done == 3
    assert [profile.epoch for profile in served.reader.profiles(job.id, 10)] == [3, 2, 1]


def test_repeated_late_and_excessive_reports_do_no_harm(served: Serving) -> None:
    job = served.running(max_epochs=5)
    done = [
        served.jobs.EndEpoch(_ended(job.id, epoch), metadata=of(job), timeout=10).epochs_done
        for epoch in (2, 2, 1, 99)
    ]
    assert done == [2, 2, 2, 5]
    assert "epochs_beyond_max" in [fact.kind for fact in served.reader.story(job.id)]


def test_every_rank_is_told_the_same(served: Serving) -> None:
    job = served.running(gpus_min=2, gpus_max=2, priority=1)
    assert not served.jobs.StartEpoch(_start(job.id, 0), metadata=of(job), timeout=10).stop
    served.submit("urgent", gpus_min=2, gpus_max=2, priority=10)
    eventually(lambda: served.job(job.id).run.phase is RunPhase.STOPPING)  # type: ignore[union-attr]
    for rank in (0, 1, 0):  # epoch 0 was begun before: it goes on
        first = served.jobs.StartEpoch(_start(job.id, 0, rank=rank), metadata=of(job), timeout=10)
        assert not first.stop
    served.jobs.EndEpoch(_ended(job.id, 1), metadata=of(job), timeout=10)
    for rank in (1, 0, 1):
        told = served.jobs.StartEpoch(_start(job.id, 1, rank=rank), metadata=of(job), timeout=10)
        assert told.stop
        assert "urgent" in told.reason
    last = served.jobs.StartEpoch(_start(job.id, 4), metadata=of(job), timeout=10)
    assert not last.stop  # the last epoch is never interrupted


def test_a_run_that_is_over_is_told_to_stop(served: Serving) -> None:
    job = served.running()
    served.people.CancelJob(pb.CancelJobRequest(job=job.id), metadata=by("ada"), timeout=10)
    eventually(lambda: served.job(job.id).outcome)
    told = served.jobs.StartEpoch(_start(job.id, 0), metadata=of(job), timeout=10)
    assert told.stop
    assert told.reason == "attempt 1 is over"


def test_a_sign_of_life_is_heard_and_teaches_memory(served: Serving) -> None:
    job = served.running(memory_mib=1000)
    profiles = [pb.Profile(job_id=job.id, attempt=1, memory_mib=mib) for mib in (9000, 0)]
    request = pb.ReportRequest(profiles=profiles)
    served.jobs.Report(request, metadata=of(job), timeout=10)
    heard = served.job(job.id)
    assert heard.memory_mib == 9000
    assert heard.run is not None
    assert heard.run.heard_at is not None


def test_a_sign_of_life_is_answered_with_whether_to_leave(served: Serving) -> None:
    job = served.running(priority=1)
    request = pb.ReportRequest(profiles=[pb.Profile(job_id=job.id, attempt=1, steps=7)])
    assert served.jobs.Report(request, metadata=of(job), timeout=10) == pb.Ack()
    served.submit("urgent", gpus_min=2, gpus_max=2, priority=10)
    eventually(lambda: served.job(job.id).run.phase is RunPhase.STOPPING)  # type: ignore[union-attr]
    told = served.jobs.Report(request, metadata=of(job), timeout=10)
    assert told.stop
    assert "urgent" in told.reason


def test_a_sign_of_life_of_a_run_that_is_over_is_answered_so(served: Serving) -> None:
    job = served.running()
    served.people.CancelJob(pb.CancelJobRequest(job=job.id), metadata=by("ada"), timeout=10)
    eventually(lambda: served.job(job.id).outcome)
    request = pb.ReportRequest(profiles=[pb.Profile(job_id=job.id, attempt=1)])
    told = served.jobs.Report(request, metadata=of(job), timeout=10)
    assert (told.stop, told.reason) == (True, "attempt 1 is over")


def test_a_job_says_that_it_has_finished(served: Serving) -> None:
    job = served.running()
    other_rank = pb.FinishRequest(job_id=job.id, attempt=1, rank=1)
    served.jobs.Finish(other_rank, metadata=of(job), timeout=10)
    assert not served.job(job.id).run.finished  # type: ignore[union-attr]  # it runs
    first_rank = pb.FinishRequest(job_id=job.id, attempt=1)
    served.jobs.Finish(first_rank, metadata=of(job), timeout=10)
    assert served.job(job.id).run.finished  # type: ignore[union-attr]  # it runs
    served.cluster.end(job.id, 1, exit_code=1)
    eventually(lambda: served.job(job.id).outcome)
    assert served.job(job.id).outcome == "succeeded"


def test_only_its_own_token_speaks_for_a_job(served: Serving) -> None:
    job, other = served.running(memory_mib=1000), served.running("other", memory_mib=1000)
    request = _ended(job.id, 1)
    with refused(grpc.StatusCode.PERMISSION_DENIED, f"this token is not the token of job {job.id}"):
        served.jobs.EndEpoch(request, metadata=of(other), timeout=10)
    with refused(grpc.StatusCode.PERMISSION_DENIED, "this token is not the token of job"):
        served.jobs.EndEpoch(request, metadata=by("ada"), timeout=10)
    with refused(grpc.StatusCode.UNAUTHENTICATED, "no token"):
        served.jobs.EndEpoch(request, timeout=10)
    with refused(grpc.StatusCode.NOT_FOUND, "no live job has the id 'nobody'"):
        served.jobs.EndEpoch(_ended("nobody", 1), metadata=of(job), timeout=10)
    both = pb.EndEpochRequest(profiles=[request.profiles[0], _ended(other.id, 1).profiles[0]])
    with refused(grpc.StatusCode.PERMISSION_DENIED, f"not the token of job {other.id}"):
        served.jobs.EndEpoch(both, metadata=of(job), timeout=10)
    assert served.job(job.id).epochs_done == served.job(other.id).epochs_done == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epoch": 0}, "epoch 0: must be at least 1"),
        ({"epoch": -3}, "epoch -3: must be at least 1"),
        ({"attempt": 0}, "attempt 0: job"),
        ({"attempt": 2}, "attempt 2: job"),
        ({"epoch_seconds": math.nan}, "epoch_seconds nan: must be a number"),
        ({"step_seconds": -1.0}, "step_seconds -1.0: must be a number"),
        ({"memory_mib": -1}, "memory_mib -1: must be at least 0"),
        ({"rank": -1}, "rank -1: must be at least 0"),
    ],
)
def test_a_report_of_nonsense_is_refused_by_name(
    served: Serving, fields: dict[str, Any], words: str
) -> None:
    job = served.running()
    with refused(grpc.StatusCode.INVALID_ARGUMENT, words):
        served.jobs.EndEpoch(_ended(job.id, **{"epoch": 1, **fields}), metadata=of(job), timeout=10)
    assert served.job(job.id).epochs_done == 0


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_report_that_is_refused_is_told_to_the_jobs_owner(
    served: Serving, seconds: float
) -> None:
    job = served.running()
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "epoch_seconds"):
        request = _ended(job.id, 1, epoch_seconds=seconds)
        served.jobs.EndEpoch(request, metadata=of(job), timeout=10)
    eventually(lambda: "report_refused" in [f.kind for f in served.reader.story(job.id)])


@pytest.mark.parametrize("seconds", [0.0, 1e300])
def test_an_epoch_that_cannot_have_taken_so_long_is_counted(
    served: Serving, seconds: float
) -> None:
    job = served.running()
    request = _ended(job.id, 1, epoch_seconds=seconds)
    assert served.jobs.EndEpoch(request, metadata=of(job), timeout=10).epochs_done == 1
    assert (served.job(job.id).profiles_ignored, served.job(job.id).measured) == (1, ())
    assert "profiles_ignored" in [fact.kind for fact in served.reader.story(job.id)]


def test_an_empty_and_an_endless_report_are_refused(served: Serving) -> None:
    job = served.running()
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "profiles: 0 of them"):
        served.jobs.EndEpoch(pb.EndEpochRequest(), metadata=of(job), timeout=10)
    many = [_ended(job.id, 1).profiles[0]] * (PROFILES_MAX + 1)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "profiles: 1001 of them, expected 1 to 1000"):
        served.jobs.EndEpoch(pb.EndEpochRequest(profiles=many), metadata=of(job), timeout=10)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "epoch -1: must be at least 0"):
        served.jobs.StartEpoch(_start(job.id, -1), metadata=of(job), timeout=10)


def test_while_the_scheduler_stops_a_job_is_asked_to_try_again(served: Serving) -> None:
    job = served.running()
    served.inbox.close("the scheduler is stopping")
    with refused(grpc.StatusCode.UNAVAILABLE, "the scheduler is stopping"):
        served.jobs.EndEpoch(_ended(job.id, 1), metadata=of(job), timeout=10)


def test_a_token_of_another_kind_is_none(served: Serving) -> None:
    job = served.running()
    basic = (("authorization", f"Basic {job.token}"),)
    with refused(grpc.StatusCode.UNAUTHENTICATED, "no token"):
        served.jobs.EndEpoch(_ended(job.id, 1), metadata=basic, timeout=10)
    lower = (("authorization", f"bearer  {job.token}"),)
    assert served.jobs.EndEpoch(_ended(job.id, 1), metadata=lower, timeout=10).epochs_done == 1
    with refused(grpc.StatusCode.PERMISSION_DENIED, "this token"):
        served.jobs.EndEpoch(_ended(job.id, 1), metadata=bearer(""), timeout=10)


def test_the_ids_of_jobs_are_text(served: Serving) -> None:
    """A job's id goes into answers: control characters in it must not."""
    job = served.running()
    with refused(grpc.StatusCode.NOT_FOUND, r"'a\n\x1b'"):
        served.jobs.EndEpoch(_ended(JobId("a\n\x1b"), 1), metadata=of(job), timeout=10)


def test_what_the_library_says_of_its_weights_is_on_disk_and_told(served: Serving) -> None:
    job = served.running(max_epochs=5)
    begins = pb.StartEpochRequest(job_id=job.id, attempt=1, epoch=2, trained=0)
    served.jobs.StartEpoch(begins, metadata=of(job), timeout=10)
    served.jobs.EndEpoch(_ended(job.id, 3, trained=1), metadata=of(job), timeout=10)
    kept = served.job(job.id)
    assert (kept.epochs_done, kept.epochs_missing) == (3, 2)
    assert served.reader.profiles(job.id, 1)[0].trained == 1
    told = served.people.GetJob(pb.GetJobRequest(job=job.id), metadata=by("ada"), timeout=10)
    assert (told.job.epochs_done, told.job.epochs_trained) == (3, 1)
    begins = pb.StartEpochRequest(job_id=job.id, attempt=1, epoch=2, trained=3)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "trained 3: must be at most 2"):
        served.jobs.StartEpoch(begins, metadata=of(job), timeout=10)

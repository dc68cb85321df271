"""The service for people, through a real channel, on a real loop and store."""

from __future__ import annotations

import json
import os
import threading
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler import run_logs
from scheduler.core.model import Job, JobId
from scheduler.v1 import scheduler_pb2 as pb
from tests.serving import (
    DENIED,
    INVALID,
    NOT_FOUND,
    REFUSED,
    Serving,
    by,
    of,
    refused,
    serving,
    submission,
)
from tests.support import eventually


def _listed(served: Serving, user: str = "ada", **filters: Any) -> list[str]:
    request = pb.ListJobsRequest(**filters)
    reply = served.people.ListJobs(request, metadata=by(user), timeout=10)
    return [job.spec.name for job in reply.jobs]


def _got(served: Serving, ref: str, user: str = "ada") -> pb.Job:
    request = pb.GetJobRequest(job=ref)
    reply: pb.GetJobReply = served.people.GetJob(request, metadata=by(user), timeout=10)
    return reply.job


def _cancelled(served: Serving, ref: str, user: str = "ada", **given: Any) -> pb.CancelJobReply:
    request = pb.CancelJobRequest(job=ref, **given)
    reply: pb.CancelJobReply = served.people.CancelJob(request, metadata=by(user), timeout=10)
    return reply


def _ended(served: Serving, job: Job, exit_code: int = 0) -> None:
    served.cluster.end(job.id, job.attempts, exit_code)
    eventually(lambda: served.job(job.id).outcome)


# --- submit -------------------------------------------------------------------------------------


def test_a_submitted_job_is_on_disk_and_belongs_to_its_submitter(served: Serving) -> None:
    request = submission(user="root", image="img:1", memory_mib=4000)
    reply = served.people.Submit(request, metadata=by("ada"), timeout=10)
    kept = served.reader.job(JobId(request.job_id))
    assert kept is not None
    assert (kept.spec.user, kept.spec.memory_mib, kept.memory_mib) == ("ada", 4000, 4000)
    assert len(kept.token) == 32
    assert reply.job.id == request.job_id
    assert list(reply.command) == ["python", "/custom/train.py"]
    assert any("img:1 is not used" in note for note in reply.notes)
    assert not reply.env


def test_the_same_id_again_is_the_same_job(served: Serving) -> None:
    request = submission("first")
    served.people.Submit(request, metadata=by("ada"), timeout=10)
    token = served.job(request.job_id).token
    request.spec.name = "second"
    again = served.people.Submit(request, metadata=by("ada"), timeout=10)
    assert again.job.spec.name == "first"
    assert served.job(request.job_id).token == token
    with refused(DENIED, f"job {request.job_id} already exists and belongs to ada: use another id"):
        served.people.Submit(request, metadata=by("bob"), timeout=10)
    assert _listed(served, all_users=True) == ["first"]


def test_the_same_id_again_is_the_same_job_also_when_it_has_ended(served: Serving) -> None:
    request = submission("first", held=True)
    served.people.Submit(request, metadata=by("ada"), timeout=10)
    _cancelled(served, request.job_id)
    again = served.people.Submit(request, metadata=by("ada"), timeout=10)
    assert again.job.state == "CANCELED"


def test_a_rehearsal_changes_nothing_and_tells_all_but_the_token(served: Serving) -> None:
    request = submission(args=["--epochs", "3", "a b"], memory_mib=4000)
    request.dry_run = True
    reply = served.people.Submit(request, metadata=by("ada"), timeout=10)
    assert list(reply.command) == ["python", "/custom/train.py", "--epochs", "3", "a b"]
    env = {pair.key: pair.value for pair in reply.env}
    assert (env["JOB_UUID"], env["NUM_GPUS"], env["RESERVED_MEM"]) == (request.job_id, "1", "4000")
    assert (env["JOB_RESTARTED"], env["EPOCHS_TO_BE_DONE"]) == ("FALSE", "5")
    assert "KUBEPROFILER_TOKEN" not in env
    assert reply.job.state == "STARTING"  # as the next plan would have it
    assert served.scheduler.view.jobs == {}
    assert served.reader.job(JobId(request.job_id)) is None


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"batch_size": 0}, INVALID, "--batch_size 0: must be at least 1"),
        ({"hours_estimate": 0.5}, INVALID, "--est_nhours 0.5: must be > 1"),
        ({"image": "a\nb"}, INVALID, r"--image_name 'a\nb': must be one line"),
        ({"script_path": ""}, INVALID, "nothing to run"),
        (
            {"env": [pb.KeyValue(key="JOB_UUID", value="x")]},
            INVALID,
            "--env JOB_UUID: is set by the scheduler",
        ),
        (
            {"memory_mib": 20000},
            REFUSED,
            "no GPU can hold 20,000 MiB; the largest holds 15,872 MiB",
        ),
        ({"gpus_min": 6}, REFUSED, "no node has 6 GPUs; the largest has 2"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_cannot_be_is_refused_and_nothing_changes(
    served: Serving, fields: dict[str, Any], status: grpc.StatusCode, words: str, dry_run: bool
) -> None:
    request = submission(**fields)
    request.dry_run = dry_run
    with refused(status, words):
        served.people.Submit(request, metadata=by("ada"), timeout=10)
    assert served.scheduler.view.jobs == {}


def test_each_submission_makes_one_preview(served: Serving) -> None:
    request = submission()
    for count, dry_run in enumerate((True, False, False), start=1):  # the last one is a repetition
        request.dry_run = dry_run
        served.people.Submit(request, metadata=by("ada"), timeout=10)
        assert served.cluster.previews == count


def test_an_id_that_is_no_uuid4_is_refused(served: Serving) -> None:
    request = submission()
    request.job_id = "../../etc/passwd"
    with refused(INVALID, "job_id '../../etc/passwd': must be a UUID4"):
        served.people.Submit(request, metadata=by("ada"), timeout=10)


def test_a_port_is_one_live_jobs(served: Serving) -> None:
    wanted = [pb.PortMapping(host=31_346, container=6006)]
    first = served.submit("mine", ports=wanted)
    words = f"31346 in use by mine (job {first} of ada), until it has ended"
    with refused(REFUSED, f"--port_mapping: {words}"):
        served.submit("theirs", "bob", ports=wanted)
    served.submit(ports=[pb.PortMapping(host=31_347, container=6006)])
    _cancelled(served, first)
    eventually(lambda: served.job(first).outcome)
    served.submit("theirs", "bob", ports=wanted)


def test_of_two_submissions_of_one_port_at_the_same_time_one_is_taken(served: Serving) -> None:
    served.cluster.admitted = threading.Barrier(2)  # neither is in the view when both are checked
    wanted = [pb.PortMapping(host=31_346, container=6006)]
    requests = [submission(name, ports=wanted) for name in ("one", "two")]
    calls = [
        served.people.Submit.future(request, metadata=by("ada"), timeout=10) for request in requests
    ]
    answers = {
        request.job_id: call.exception() for request, call in zip(requests, calls, strict=True)
    }
    (taken,) = (job_id for job_id, error in answers.items() if error is None)
    (refusal,) = (error for error in answers.values() if error is not None)
    assert refusal.code() is REFUSED
    assert "--port_mapping: 31346 in use by " in (refusal.details() or "")
    assert f"(job {taken} of ada)" in (refusal.details() or "")
    assert list(served.scheduler.view.jobs) == [taken]
    assert served.reader.existing_ids(JobId(request.job_id) for request in requests) == {taken}


def test_a_submission_that_is_sent_twice_at_the_same_time_has_its_own_port(
    served: Serving,
) -> None:
    served.cluster.admitted = threading.Barrier(2)
    request = submission(ports=[pb.PortMapping(host=31_346, container=6006)])
    calls = [served.people.Submit.future(request, metadata=by("ada"), timeout=10) for _ in "12"]
    assert {call.result().job.id for call in calls} == {request.job_id}


def test_a_user_whom_the_cluster_does_not_take_is_refused(served: Serving) -> None:
    with refused(DENIED, "mallory may run nothing here"):
        served.submit(user="mallory")


def test_before_the_first_look_anything_is_taken_and_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, look=False) as served:
        job_id = served.submit(memory_mib=20000)
        assert _got(served, job_id).reason == "waits for the first observation of the cluster"


def test_a_call_without_a_token_of_ours_is_unauthenticated(served: Serving) -> None:
    with refused(grpc.StatusCode.UNAUTHENTICATED, "no token: set SCHEDULER_TOKEN"):
        served.people.ListJobs(pb.ListJobsRequest(), timeout=10)
    job = served.running()
    with refused(grpc.StatusCode.UNAUTHENTICATED, "this token was not issued by this scheduler"):
        served.people.ListJobs(pb.ListJobsRequest(), metadata=of(job), timeout=10)
    for call, request in [
        (served.people.Submit, submission()),
        (served.people.GetJob, pb.GetJobRequest(job=job.id)),
        (served.people.CancelJob, pb.CancelJobRequest(job=job.id)),
        (served.people.UpdateJob, pb.UpdateJobRequest(job=job.id, priority=2)),
        (served.people.GetCluster, pb.GetClusterRequest()),
    ]:
        with refused(grpc.StatusCode.UNAUTHENTICATED, "no token"):
            call(request, timeout=10)
    for stream, asked in [
        (served.people.WatchJobs, pb.ListJobsRequest()),
        (served.people.GetLogs, pb.GetLogsRequest(job=job.id)),
    ]:
        with refused(grpc.StatusCode.UNAUTHENTICATED, "no token"):
            next(stream(asked, timeout=10))


# --- many at once -------------------------------------------------------------------------------


def _many(count: int, **common: Any) -> pb.SubmitManyRequest:
    jobs = [
        pb.SubmitRequest(job_id=str(uuid.uuid4()), spec=pb.JobSpec(name=f"grid-{number}"))
        for number in range(count)
    ]
    given: dict[str, Any] = {"script_path": "/custom/train.py", "max_epochs": 5, **common}
    return pb.SubmitManyRequest(jobs=jobs, common=pb.JobSpec(**given))


def _submitted(
    served: Serving, request: pb.SubmitManyRequest, user: str = "ada"
) -> pb.SubmitManyReply:
    reply: pb.SubmitManyReply = served.people.SubmitMany(request, metadata=by(user), timeout=20)
    return reply


def test_a_thousand_jobs_are_accepted_in_one_commit(served: Serving) -> None:
    request = _many(1000, held=True)
    before = served.scheduler.view.number
    reply = _submitted(served, request)
    assert reply.accepted == 1000
    times = {job.submitted_at for job in served.scheduler.view.jobs.values()}
    assert (len(served.scheduler.view.jobs), len(times)) == (1000, 1)
    assert served.scheduler.view.number - before < 10
    kept = served.reader.job(JobId(request.jobs[999].job_id))
    assert kept is not None
    assert kept.spec.name == "grid-999"


def test_many_jobs_submitted_again_are_the_same_jobs(served: Serving) -> None:
    request = _many(3, held=True)
    assert _submitted(served, request).accepted == 3
    request.jobs.add(job_id=str(uuid.uuid4()), spec=pb.JobSpec(name="more"))
    assert _submitted(served, request).accepted == 1
    assert len(served.scheduler.view.jobs) == 4
    with refused(DENIED, "already exists and belongs to ada"):
        _submitted(served, request, "bob")


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"batch_size": 0}, INVALID, "job 'bad': --batch_size 0: must be at least 1; none of the"),
        ({"memory_mib": 20_000}, REFUSED, "job 'bad': no GPU can hold 20,000 MiB"),
        ({"ports": [pb.PortMapping(host=31346, container=1)]}, INVALID, "a job with ports by"),
        ({"secrets": ["KEY"]}, INVALID, "--secret KEY: its value is missing"),
    ],
)
def test_one_job_that_is_refused_refuses_all(
    change: dict[str, Any], status: grpc.StatusCode, words: str, served: Serving
) -> None:
    request = _many(3)
    request.jobs.add(job_id=str(uuid.uuid4()), spec=pb.JobSpec(name="bad", **change))
    with refused(status, words):
        _submitted(served, request)
    assert not served.scheduler.view.jobs


def test_no_jobs_too_many_and_the_same_one_twice_are_refused(served: Serving) -> None:
    with refused(INVALID, "0 jobs at once: must be 1 to 10000"):
        _submitted(served, _many(0))
    request = _many(1)
    request.jobs.append(request.jobs[0])
    with refused(INVALID, "is given twice"):
        _submitted(served, request)
    many = pb.SubmitManyRequest(jobs=[pb.SubmitRequest()] * 10_001)
    with refused(INVALID, "10001 jobs at once"):
        _submitted(served, many)


def test_a_rehearsal_of_many_checks_all_and_changes_nothing(served: Serving) -> None:
    request = _many(3)
    request.dry_run = True
    assert _submitted(served, request).accepted == 3
    assert not served.scheduler.view.jobs


# --- pages --------------------------------------------------------------------------------------


def _pages(served: Serving, size: int, **given: Any) -> list[pb.ListJobsReply]:
    """All pages of a list."""
    replies: list[pb.ListJobsReply] = []
    cursor = ""
    while not replies or cursor:
        request = pb.ListJobsRequest(all_users=True, limit=size, cursor=cursor, **given)
        replies.append(served.people.ListJobs(request, metadata=by("bob"), timeout=10))
        cursor = replies[-1].next_cursor
    return replies


def _various(served: Serving) -> list[str]:
    """Live and ended jobs, the oldest first."""
    names = ["a", "b", "c", "b", "a", "d", "c", "b"]
    ids = [
        served.submit(name, user, held=True, project=f"p{number % 3}", priority=1 + number % 4)
        for number, (name, user) in enumerate(zip(names, ["ada", "eve"] * 4, strict=True))
    ]
    for number in (1, 4, 5):
        _cancelled(served, ids[number], user=["ada", "eve"][number % 2])
    eventually(lambda: all(served.job(ids[number]).outcome for number in (1, 4, 5)))
    return ids


ORDERED: dict[str, Any] = {
    "submitted": lambda job: 0,
    "name": lambda job: job.spec.name,
    "user": lambda job: job.spec.user,
    "project": lambda job: job.spec.project,
    "experiment": lambda job: "",
    "state": lambda job: job.state,
    "priority": lambda job: job.priority,
}


@pytest.mark.parametrize("ascending", [False, True])
def test_pages_of_a_list_hold_each_job_once_in_its_order(served: Serving, ascending: bool) -> None:
    ids = _various(served)
    for order, value in ORDERED.items():
        for size in (1, 3, 8):
            replies = _pages(served, size, order=order, ascending=ascending)
            jobs = [job for reply in replies for job in reply.jobs]
            wanted = sorted(
                jobs, key=lambda job: (value(job), ids.index(job.id)), reverse=not ascending
            )
            assert [job.id for job in jobs] == [job.id for job in wanted], order
            assert sorted(job.id for job in jobs) == sorted(ids)
            assert {reply.total for reply in replies} == {8}


def test_without_an_order_the_newest_come_first(served: Serving) -> None:
    ids = _various(served)
    jobs = [job.id for reply in _pages(served, 3) for job in reply.jobs]
    assert jobs == ids[::-1]


def test_a_job_that_ends_between_two_pages_is_on_one_of_them(served: Serving) -> None:
    ids = _various(served)
    first = served.people.ListJobs(
        pb.ListJobsRequest(all_users=True, limit=4), metadata=by("bob"), timeout=10
    )
    for number in (2, 7):
        _cancelled(served, ids[number], user=["ada", "eve"][number % 2])
    served.submit("new", held=True)
    second = served.people.ListJobs(
        pb.ListJobsRequest(all_users=True, limit=4, cursor=first.next_cursor),
        metadata=by("bob"),
        timeout=10,
    )
    assert [job.id for job in (*first.jobs, *second.jobs)] == ids[::-1]
    assert second.next_cursor == ""


def test_a_search_finds_live_and_ended_jobs(served: Serving) -> None:
    ids = _various(served)
    for search, found in [
        ("B", [1, 3, 7]),
        ("eve", [1, 3, 5, 7]),
        ("P2", [2, 5]),
        (ids[5][4:30], [5]),
        ("%", []),
    ]:
        (reply,) = _pages(served, 20, search=search)
        hidden = [job.id for job in reply.jobs if ids.index(job.id) not in found]
        # Ids are random, and may contain what is searched for.
        assert all(search.lower() in job_id for job_id in hidden)
        assert {job.id for job in reply.jobs} >= {ids[number] for number in found}
        assert reply.total == len(reply.jobs)


def test_a_brief_list_says_nothing_that_is_long_or_secret(served: Serving) -> None:
    served.submit(
        env=[pb.KeyValue(key="KEY", value="v" * 1000)], args=["--long", "x" * 1000], held=True
    )
    request = pb.ListJobsRequest(all_users=True, brief=True)
    reply = served.people.ListJobs(request, metadata=by("ada"), timeout=10)
    assert len(reply.SerializeToString()) < 500
    assert (reply.jobs[0].spec.name, reply.jobs[0].spec.max_epochs) == ("demo", 5)
    assert reply.events


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"order": "age"}, "order 'age': is none of submitted, name"),
        ({"cursor": "x"}, "cursor 'x': is not of this list"),
        ({"cursor": "x" * 10_000}, "is not of this list"),
        ({"search": "x" * 201}, "search: has 201 characters, 200 at most"),
        ({"jobs": ["demo"], "order": "name"}, "jobs that are named are listed on one page"),
    ],
)
def test_impossible_pages_are_refused(served: Serving, given: dict[str, Any], words: str) -> None:
    with refused(INVALID, words):
        _listed(served, **given)


def test_a_cursor_of_another_order_is_refused(served: Serving) -> None:
    _various(served)
    cursor = _pages(served, 3, order="name")[0].next_cursor
    for given in ({"order": "user"}, {"order": "name", "ascending": True}, {}):
        with refused(INVALID, "is not of this list"):
            _listed(served, cursor=cursor, **given)


# --- finding ------------------------------------------------------------------------------------


def _named(served: Serving, job_id: str, name: str, user: str = "ada") -> None:
    request = submission(name, held=True)
    request.job_id = job_id
    served.people.Submit(request, metadata=by(user), timeout=10)


def test_a_job_is_found_by_id_by_end_and_by_name(served: Serving) -> None:
    head = str(uuid.uuid4())[:28]
    _named(served, f"{head}60ce2fc7", "one")
    _named(served, f"{head}99ce2fc7", "two", "bob")
    for ref in (f"{head}60ce2fc7", "60ce2fc7", "0ce2fc7", "one"):
        assert _got(served, ref).id == f"{head}60ce2fc7"
    with pytest.raises(grpc.RpcError) as doubt:
        _got(served, "ce2fc7")
    assert doubt.value.code() is INVALID
    title, *candidates = (doubt.value.details() or "").splitlines()
    assert title == "'ce2fc7' is the end of several ids:"
    assert sorted(candidates) == ["  60ce2fc7  one  ada  HELD", "  99ce2fc7  two  bob  HELD"]


def test_ids_with_the_same_last_eight_characters_are_told_apart(served: Serving) -> None:
    _named(served, "00000000-0000-4000-8000-000160ce2fc7", "one")
    _named(served, "00000000-0000-4000-8000-000260ce2fc7", "two")
    with refused(INVALID, "  160ce2fc7  one  ada  HELD"):
        _got(served, "60ce2fc7")


@pytest.mark.parametrize(
    "ref", ["", "abc", "deadbeef", "%", "____", "a\nb", "' or 1=1", "x" * 9999]
)
def test_what_no_job_is_called_is_not_found(served: Serving, ref: str) -> None:
    served.submit("demo", held=True)
    with refused(NOT_FOUND, "no job matches "):
        _got(served, ref)


def test_a_name_finds_live_jobs_or_else_those_that_ended(served: Serving) -> None:
    old = served.submit("demo", held=True)
    _cancelled(served, old)
    assert _got(served, "demo").id == old
    assert _got(served, old[-8:]).state == "CANCELED"
    later = served.submit("demo", held=True)
    _cancelled(served, later)
    with refused(INVALID, f"the name of several jobs:\n  {later[-8:]}  demo  ada  CANCELED"):
        _got(served, "demo")
    new = served.submit("demo", held=True)
    assert _got(served, "demo").id == new
    served.submit("demo", "bob", held=True)
    with refused(INVALID, "'demo' is the name of several jobs:"):
        _got(served, "demo")


def test_a_story_is_told(served: Serving) -> None:
    job = served.running()
    request = pb.GetJobRequest(job=job.id, story=True)
    reply = served.people.GetJob(request, metadata=by("bob"), timeout=10)
    kinds = [fact.kind for fact in reply.story]
    assert kinds[:2] == ["job_submitted", "run_started"]
    assert json.loads(reply.story[0].data_json) == {"name": "demo", "user": "ada"}


def test_a_forecast_is_given_on_request(served: Serving) -> None:
    for number in range(2):
        served.running(f"demo{number}")
    waits = served.submit("third")
    eventually(lambda: _got(served, waits).why.kind == "gpus")
    plain = served.people.GetJob(pb.GetJobRequest(job=waits), metadata=by("ada"), timeout=10)
    assert not plain.job.why.until
    assert not plain.HasField("learned")
    request = pb.GetJobRequest(job=waits, outlook=True)
    reply = served.people.GetJob(request, metadata=by("bob"), timeout=10)
    assert (
        reply.job.reason == "gpus (needs a whole GPU because its memory use is not known yet"
        " (--estimated_memory); no GPU is empty)"
    )
    assert [each.name for each in reply.job.why.until] in (["demo0"], ["demo1"])
    assert [speed.gpus for speed in reply.learned.speeds] == ["pretendedx1"]


def test_others_see_all_of_a_job_but_what_its_variables_hold(served: Serving) -> None:
    secret = pb.KeyValue(key="API_KEY", value="s3cret")
    job_id = served.submit(env=[secret])
    assert _got(served, job_id, "ada").spec.env[0].value == "s3cret"
    assert _got(served, job_id, "root").spec.env[0].value == "s3cret"
    hidden = _got(served, job_id, "bob")
    assert (hidden.spec.user, hidden.spec.env[0].key) == ("ada", "API_KEY")
    assert hidden.spec.env[0].value == "(hidden)"
    listing = served.people.ListJobs(
        pb.ListJobsRequest(all_users=True), metadata=by("bob"), timeout=10
    )
    assert "s3cret" not in str(listing)


# --- lists --------------------------------------------------------------------------------------


def test_a_list_is_the_callers_own_newest_first(served: Serving) -> None:
    for name in ("a", "b", "c"):
        served.submit(name, held=True)
    served.submit("d", "bob", held=True)
    assert _listed(served) == ["c", "b", "a"]
    assert _listed(served, "bob") == ["d"]
    assert _listed(served, all_users=True) == ["d", "c", "b", "a"]
    assert _listed(served, user="bob") == ["d"]
    assert _listed(served, limit=2) == ["c", "b"]
    request = pb.ListJobsRequest(limit=2)
    assert served.people.ListJobs(request, metadata=by("ada"), timeout=10).total == 3


def test_twenty_are_listed_unless_told_otherwise(served: Serving) -> None:
    for number in range(25):
        served.submit(f"job{number}", held=True)
    assert len(_listed(served)) == 20
    assert len(_listed(served, limit=1000)) == 25
    for limit in (0, -1, 1001):
        with refused(INVALID, f"--nlast {limit}: must be at"):
            _listed(served, limit=limit)


def test_lists_filter_live_and_ended_jobs_alike(served: Serving) -> None:
    vision = [pb.KeyValue(key="team", value="vision")]
    old = served.submit("old", project="p", experiment="e", labels=vision, held=True)
    _cancelled(served, old)
    served.submit("held", project="p", labels=vision, held=True)
    served.submit("other", project="q", experiment="e", held=True)
    served.running("runs")
    assert _listed(served, project="p") == ["held", "old"]
    assert _listed(served, experiment="e") == ["other", "old"]
    assert _listed(served, labels=vision) == ["held", "old"]
    assert _listed(served, labels=[pb.KeyValue(key="team", value="nlp")]) == []
    assert _listed(served, labels=[pb.KeyValue(key="team", value="")]) == []
    assert _listed(served, labels=[pb.KeyValue(key="team", value="*")]) == ["held", "old"]
    assert _listed(served, labels=[pb.KeyValue(key="no", value="*")]) == []
    assert _listed(served, states=["HELD"]) == ["other", "held"]
    assert _listed(served, states=["Killed", "running"]) == ["runs", "old"]
    assert _listed(served, states=["QUEUE"]) == ["runs"]
    assert _listed(served, states=["FINISHED"], project="p") == []
    assert _listed(served, jobs=["held", old, old[-6:]]) == ["held", "old"]
    assert _listed(served, jobs=["held", old], states=["CANCELED"]) == ["old"]
    assert _listed(served, "bob", jobs=["held"]) == ["held"]
    with refused(INVALID, "--status 'SLEEPING': is none of"):
        _listed(served, states=["SLEEPING"])


def test_a_list_never_outgrows_a_message(served: Serving) -> None:
    for number in range(70):
        served.submit(f"job{number}", args=["x" * 60_000], held=True)
    request = pb.ListJobsRequest(limit=1000)
    reply = served.people.ListJobs(request, metadata=by("ada"), timeout=10)
    assert 40 < len(reply.jobs) < 70
    assert reply.total == 70
    assert reply.jobs[0].spec.name == "job69"


def test_a_running_job_tells_what_is_left_of_it(served: Serving) -> None:
    job = served.running(max_epochs=5)
    profile = pb.Profile(job_id=job.id, attempt=1, epoch=1, epoch_seconds=2.5)
    served.jobs.EndEpoch(pb.EndEpochRequest(profiles=[profile]), metadata=of(job), timeout=10)
    told = _got(served, job.id)
    assert (told.epochs_done, told.epoch_seconds, told.eta_seconds) == (1, 2.5, 10.0)
    assert (told.state, told.attempt, len(told.shares)) == ("RUNNING", 1, 1)
    assert told.heard_at >= told.run_started_at >= told.submitted_at


def test_a_watcher_is_told_of_changes_and_of_nothing_else(served: Serving) -> None:
    job_id = served.submit("demo", held=True)
    served.submit("other", "bob", held=True)
    stream = served.people.WatchJobs(pb.ListJobsRequest(jobs=["demo"]), metadata=by("ada"))
    assert [job.state for job in next(stream).jobs] == ["HELD"]
    served.submit("another", "bob", held=True)  # is none of its business
    _cancelled(served, job_id)  # after that no live job has the name
    assert [job.state for job in next(stream).jobs] == ["CANCELED"]
    stream.cancel()


def test_a_watcher_sees_a_job_fall_silent(tmp_path: Path) -> None:
    with serving(tmp_path, heartbeat_seconds=0.0) as served:
        job = served.running()
        report = pb.ReportRequest(profiles=[pb.Profile(job_id=job.id, attempt=1)])
        served.jobs.Report(report, metadata=of(job), timeout=10)
        for reply in served.people.WatchJobs(pb.ListJobsRequest(), metadata=by("ada"), timeout=60):
            if reply.jobs[0].state == "UNRESPONSIVE":
                break
        assert reply.jobs[0].reason.startswith("no report")


def _measured(served: Serving, job: Job) -> None:
    """It trains two epochs: the first one is not typical."""
    for epoch in (0, 1):
        start = pb.StartEpochRequest(job_id=job.id, attempt=1, epoch=epoch)
        served.jobs.StartEpoch(start, metadata=of(job), timeout=10)
        profile = pb.Profile(job_id=job.id, attempt=1, epoch=epoch + 1, epoch_seconds=2.5, steps=25)
        served.jobs.EndEpoch(pb.EndEpochRequest(profiles=[profile]), metadata=of(job), timeout=10)


def _described(served: Serving, job_id: str) -> pb.Job:
    request = pb.GetJobRequest(job=job_id, outlook=True)
    reply: pb.GetJobReply = served.people.GetJob(request, metadata=by("ada"), timeout=10)
    return reply.job


@pytest.mark.parametrize("is_silent", [True, False])
def test_nothing_is_forecast_of_a_silent_job_nor_of_who_waits_for_it(
    is_silent: bool, tmp_path: Path
) -> None:
    with serving(tmp_path, heartbeat_seconds=0.0 if is_silent else 30.0) as served:
        job = served.running("hang", gpus_min=2, gpus_max=2)
        _measured(served, job)
        waits = served.submit("waits", gpus_min=2, gpus_max=2)
        hang = _described(served, job.id)
        assert hang.state == ("UNRESPONSIVE" if is_silent else "RUNNING")
        assert hang.eta.HasField("ends_at") != is_silent
        assert hang.HasField("eta_seconds") != is_silent
        told = _described(served, waits)
        assert [(name.name, name.silent) for name in told.why.until] == [("hang", is_silent)]
        assert told.eta.HasField("starts_at") != is_silent
        assert not told.why.until[0].HasField("deadline")  # the current library may be silent


def test_who_waits_for_a_silent_job_that_is_to_stop_is_told_the_deadline(tmp_path: Path) -> None:
    with serving(tmp_path, heartbeat_seconds=0.0) as served:
        job = served.running("hang", gpus_min=2, gpus_max=2, max_epochs=30)
        _measured(served, job)
        waits = served.submit("waits", gpus_min=2, gpus_max=2, priority=9)
        eventually(lambda: (run := served.job(job.id).run) and run.kill_at)
        (name,) = _described(served, waits).why.until
        run = served.job(job.id).run
        assert run
        assert (name.name, name.stopping, name.silent) == ("hang", True, True)
        assert name.deadline == run.kill_at
        assert _described(served, job.id).eta.deadline == run.kill_at


# --- changes ------------------------------------------------------------------------------------


def test_a_waiting_job_is_cancelled_at_once_a_running_one_is_stopped(served: Serving) -> None:
    waiting = served.submit("waiting", held=True)
    assert _cancelled(served, waiting).job.state == "CANCELED"
    running = served.running()
    first = _cancelled(served, running.id)
    assert not first.already_ended
    assert first.job.state in ("STOPPING", "CANCELED")
    eventually(lambda: served.job(running.id).outcome)
    again = _cancelled(served, running.id)
    assert again.already_ended
    assert again.job.state == "CANCELED"
    assert again.job.reason == "cancelled by ada"


def test_a_graceful_cancel_lets_the_epoch_end(served: Serving) -> None:
    job = served.running()
    served.jobs.StartEpoch(
        pb.StartEpochRequest(job_id=job.id, attempt=1, epoch=0), metadata=of(job), timeout=10
    )
    reply = _cancelled(served, job.id, graceful=True)
    assert (reply.job.state, reply.already_ended) == ("STOPPING", False)
    told = served.jobs.StartEpoch(
        pb.StartEpochRequest(job_id=job.id, attempt=1, epoch=1), metadata=of(job), timeout=10
    )
    assert (told.stop, told.reason) == (True, "cancelled by ada")


def test_only_the_owner_and_admins_change_a_job(served: Serving) -> None:
    job_id = served.submit(held=True)
    update = pb.UpdateJobRequest(job=job_id, priority=5)
    with refused(DENIED, f"job {job_id} belongs to ada, and you are bob"):
        _cancelled(served, job_id, "bob")
    with refused(DENIED, f"job {job_id} belongs to ada, and you are bob"):
        served.people.UpdateJob(update, metadata=by("bob"), timeout=10)
    assert served.job(job_id).priority == 1
    assert served.job(job_id).outcome is None
    assert served.people.UpdateJob(update, metadata=by("root"), timeout=10).priority == 5
    assert _cancelled(served, job_id, "root").job.reason == "cancelled by root"


def test_an_update_changes_what_it_names(served: Serving) -> None:
    job_id = served.submit(held=True, priority=3)
    update = pb.UpdateJobRequest(job=job_id, held=False, max_epochs=9)
    told = served.people.UpdateJob(update, metadata=by("ada"), timeout=10)
    assert (told.priority, told.max_epochs) == (3, 9)
    assert told.state != "HELD"
    eventually(lambda: served.job(job_id).run)


def test_an_update_that_cannot_be_is_refused(served: Serving) -> None:
    job = served.running(max_epochs=5)
    profile = pb.Profile(job_id=job.id, attempt=1, epoch=3)
    served.jobs.EndEpoch(pb.EndEpochRequest(profiles=[profile]), metadata=of(job), timeout=10)
    for fields, words in [
        ({}, "nothing to change"),
        ({"priority": 1001}, "--priority 1001: must be at most 1000"),
        ({"max_epochs": 2}, "--max_epochs 2: must be at least 3"),
        ({"max_epochs": -2}, "--max_epochs -2: must be at least 3"),
    ]:
        with refused(INVALID, words):
            request = pb.UpdateJobRequest(job=job.id, **fields)  # type: ignore[arg-type]  # by name
            served.people.UpdateJob(request, metadata=by("ada"), timeout=10)
    assert (served.job(job.id).priority, served.job(job.id).max_epochs) == (1, 5)
    _ended(served, job, exit_code=1)
    with refused(REFUSED, f"job {job.id} has ended: it is FAILED"):
        served.people.UpdateJob(
            pb.UpdateJobRequest(job=job.id, priority=2), metadata=by("ada"), timeout=10
        )


# --- the cluster --------------------------------------------------------------------------------


def test_the_cluster_tells_what_each_gpu_holds_and_each_user_has(served: Serving) -> None:
    one = served.running("one", memory_mib=4000)
    two = served.running("two", "bob", memory_mib=11872)
    served.submit("three", "bob", held=True)
    told = served.people.GetCluster(pb.GetClusterRequest(), metadata=by("eve"), timeout=10)
    assert [(gpu.node, gpu.gpu, gpu.index) for gpu in told.gpus] == [
        ("westworld", "gpu0", 0),
        ("westworld", "gpu1", 1),
    ]
    assert {(gpu.memory_mib, gpu.capacity_mib) for gpu in told.gpus} == {(16384, 15872)}
    assert sum(gpu.reserved_mib for gpu in told.gpus) == 15872
    holders = {job.job_id: job for gpu in told.gpus for job in gpu.jobs}
    assert holders.keys() == {one.id, two.id}
    assert (holders[one.id].name, holders[one.id].user) == ("one", "ada")
    assert (holders[one.id].memory_mib, holders[one.id].state) == (4000, "RUNNING")
    totals = {total.user: total for total in told.users}
    assert (totals["ada"].running, totals["ada"].waiting) == (1, 0)
    assert (totals["bob"].running, totals["bob"].waiting) == (1, 1)
    assert totals["ada"].gpus + totals["bob"].gpus == pytest.approx(1.0)
    assert (told.policy, told.version) == ("fifo_sharing", "1.2.3")
    assert told.observed_at > 0


# --- logs ---------------------------------------------------------------------------------------


def _write(served: Serving, job_id: str, attempt: int, rank: int, text: str) -> None:
    path = run_logs.log_path(served.logs, JobId(job_id), attempt, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def _chunks(served: Serving, job_id: str, user: str = "ada", **given: Any) -> list[pb.LogChunk]:
    request = pb.GetLogsRequest(job=job_id, **given)
    return list(served.people.GetLogs(request, metadata=by(user), timeout=30))


def _text(served: Serving, job_id: str, **given: Any) -> str:
    return b"".join(chunk.data for chunk in _chunks(served, job_id, **given)).decode()


def test_the_words_of_one_attempt_are_sent_as_they_are(served: Serving) -> None:
    job = served.running()
    _write(served, job.id, 1, 0, "one\ntwo\nthree")
    assert _text(served, job.id) == "one\ntwo\nthree"
    assert _text(served, job.id, tail=2) == "two\nthree"
    assert _text(served, job.id, tail=0) == ""
    assert _text(served, "demo", tail=9) == "one\ntwo\nthree"


def test_a_line_stands_between_the_words_of_several(served: Serving) -> None:
    job = served.running()
    _write(served, job.id, 1, 0, "a")
    _write(served, job.id, 1, 1, "b\n")
    _write(served, job.id, 2, 0, "c\n")
    first, second = "==> attempt 1 (rank 0) <==\n", "==> attempt 1 (rank 1) <==\n"
    assert _text(served, job.id, attempt=1) == f"{first}a\n{second}b\n"
    assert _text(served, job.id) == f"{first}a\n{second}b\n==> attempt 2 (rank 0) <==\nc\n"
    assert _text(served, job.id, tail=1) == "c\n"
    with refused(NOT_FOUND, f"job {job.id} has had 1 attempts, not 2"):
        _text(served, job.id, attempt=2)


def test_followers_hear_all_and_leave_with_the_job(served: Serving) -> None:
    job = served.running()
    _write(served, job.id, 1, 0, "one\ntwo\n")
    request = pb.GetLogsRequest(job=job.id, follow=True, tail=1)
    stream = served.people.GetLogs(request, metadata=by("bob"), timeout=60)
    assert next(stream).data == b"two\n"
    _write(served, job.id, 1, 0, "three\n")
    assert next(stream).data == b"three\n"
    _write(served, job.id, 1, 0, "last words\n")
    _ended(served, job)
    assert b"".join(chunk.data for chunk in stream) == b"last words\n"


def test_what_has_said_nothing_says_why(served: Serving) -> None:
    waiting = served.submit("waiting", held=True)
    (chunk,) = _chunks(served, waiting)
    assert chunk.note.startswith("pending since 20")
    assert chunk.note.endswith(" UTC, no output yet")
    job = served.running()
    assert [chunk.note for chunk in _chunks(served, job.id)] == ["no output yet"]
    _ended(served, job)
    assert [chunk.note for chunk in _chunks(served, job.id)] == ["it ended without any output"]


def test_a_download_names_each_file_and_sends_only_what_is_missing(served: Serving) -> None:
    job = served.running()
    _write(served, job.id, 1, 0, "0123456789")
    _write(served, job.id, 1, 1, "abc")

    def fetched(**have: int) -> dict[str, bytes]:
        held = {f"attempt-1/{name}.log": size for name, size in have.items()}
        files: dict[str, bytes] = {}
        for chunk in _chunks(served, job.id, download=True, have=held):
            files[chunk.file] = files.get(chunk.file, b"") + chunk.data
        return files

    zero, one = "attempt-1/rank0.log", "attempt-1/rank1.log"
    assert fetched() == {zero: b"0123456789", one: b"abc"}
    assert fetched(rank0=7, rank1=3) == {zero: b"789", one: b""}
    assert fetched(rank0=99, rank1=-5) == {zero: b"", one: b"abc"}


def test_a_long_log_comes_in_parts(served: Serving) -> None:
    job = served.running()
    text = "".join(f"line {number}\n" for number in range(50_000))
    _write(served, job.id, 1, 0, text)
    assert len(_chunks(served, job.id)) > 5
    assert _text(served, job.id) == text
    assert _text(served, job.id, tail=100) == "".join(text.splitlines(keepends=True)[-100:])


def test_a_log_of_4_tib_that_was_never_written_is_read_at_once(served: Serving) -> None:
    job = served.running()
    _write(served, job.id, 1, 0, "one\ntwo\n")
    os.truncate(run_logs.log_path(served.logs, job.id, 1, 0), 2**42)
    for lines, begin in ((None, "one\ntwo\n"), (10, "one\ntwo\n"), (2, "two\n"), (1, "")):
        text = _text(served, job.id, tail=lines)
        assert text.startswith(begin + "\0")
        assert text.endswith(" bytes of the output are not kept\n")
        assert len(text) < 100_000


def test_numbers_of_logs_that_cannot_be_are_refused(served: Serving) -> None:
    job = served.running()
    with refused(INVALID, "--tail -1: must be at least 0"):
        _chunks(served, job.id, tail=-1)
    with refused(INVALID, "--attempt -1: must be at least 0"):
        _chunks(served, job.id, attempt=-1)


@pytest.mark.parametrize(
    ("spec", "is_told"),
    [
        ({"script_path": "/custom/train.py"}, True),
        ({"script_path": "", "command": ["/venv/bin/python3", "-m", "train"]}, True),
        ({"script_path": "", "command": ["torchrun", "train.py"]}, True),
        ({"script_path": "", "command": ["echo", "done"]}, False),
        ({"script_path": "/custom/train.py", "max_epochs": 1}, False),
    ],
)
def test_a_script_without_a_number_of_epochs_is_told_that_it_trains_one(
    spec: dict[str, Any], is_told: bool, served: Serving
) -> None:
    request = submission(**{"max_epochs": None, **spec})
    reply = served.people.Submit(request, metadata=by("ada"), timeout=10)
    note = "without --max_epochs, a script that uses kubernetesdlprofile trains 1 epoch"
    assert (note in reply.notes) == is_told

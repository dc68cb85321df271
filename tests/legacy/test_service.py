"""Old images before the job service: what they say is committed, and nothing false gets in."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Collection
from typing import Any

import pytest

from scheduler.access.identity import user_name, user_token
from scheduler.core.model import Job, JobId, Run, RunPhase
from scheduler.http.http11 import Reply, Request
from scheduler.http.http_server import Caller
from scheduler.legacy import service
from scheduler.legacy.messages import OldReport
from scheduler.legacy.service import LegacyService
from scheduler.v1 import scheduler_pb2 as pb
from tests.serving import SECRET, Serving, by, of
from tests.support import eventually

HERE, ELSEWHERE = Caller("127.0.0.1", os.geteuid), Caller("192.0.2.7", lambda: None)


@pytest.fixture
def old(served: Serving) -> LegacyService:
    return listener(served)


def listener(
    served: Serving,
    token_required: bool = False,
    jobs_at: Callable[[str], Collection[JobId]] | None = None,
) -> LegacyService:
    """A new one knows nothing of what the one before has heard, as after a restart."""
    return LegacyService(
        served.profiler,
        served.api,
        lambda: served.scheduler.view,
        served.inbox.now,
        token_required,
        jobs_at,
    )


def ask(
    old: LegacyService,
    method: str,
    path: str,
    body: Any = None,
    token: str = "",
    caller: Caller = HERE,
    attempt: str = "",
) -> Reply:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if attempt:
        headers["x-attempt"] = attempt
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
    return old.answer(Request(method, path, headers, data, True), caller)


def may_go_on(old: LegacyService, job: Job) -> bool:
    reply = ask(old, "GET", f"/has_to_stop/{job.id}")
    assert reply.status == 200
    assert reply.text in ("0", "1")
    return reply.text == "0"


def ended(old: LegacyService, job: Job, steps: int, **more: Any) -> None:
    """W3, of an image that has asked whether it may start this epoch."""
    assert ask(old, "GET", f"/has_to_stop/{job.id}").status == 200
    epoch_ended(old, job, steps, **more)


def epoch_ended(old: LegacyService, job: Job, steps: int, **more: Any) -> None:
    """W3 alone."""
    told = {"rank": 0, "iternum": steps, "gpumem": 250, "meandur": 0.1, "epochDur": 2.5, **more}
    assert ask(old, "POST", f"/profiling/{job.id}", told).status == 200


def done(old: LegacyService, job: Job, epochs: int) -> None:
    """W4."""
    assert ask(old, "POST", f"/end_epoch/{job.id}", {"done": epochs}) == Reply(200, "")


def run_of(served: Serving, job: Job) -> Run:
    run = served.job(job.id).run
    assert run is not None
    return run


# --- epochs ---------------------------------------------------------------------------------------


def test_an_epoch_is_counted_and_on_disk_when_it_is_answered(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(memory_mib=4000)
    ended(old, job, 4, gpumem=300)
    (kept,) = served.reader.profiles(job.id, 10)
    assert (kept.epoch, kept.attempt, kept.epoch_seconds) == (1, 1, 2.5)
    assert (kept.memory_mib, kept.steps, kept.placement) == (300, 4, "pretendedx1")
    assert served.job(job.id).epochs_done == 1


def test_a_new_daemon_counts_on_where_the_last_one_ended(
    served: Serving, old: LegacyService
) -> None:
    job = served.running()
    ended(old, job, 4)
    ended(old, job, 9)
    again = listener(served)
    ended(again, job, 9)
    assert served.job(job.id).epochs_done == 2
    ended(again, job, 14)
    assert served.job(job.id).epochs_done == 3


def test_a_sign_of_life_and_another_rank_end_no_epoch(served: Serving, old: LegacyService) -> None:
    job = served.running(memory_mib=1000)
    sign = {"rank": 0, "iternum": 3, "gpumem": 9000, "meandur": 0.1}
    assert ask(old, "POST", f"/profiling/{job.id}", sign).status == 200
    ended(old, job, 4, rank=1)
    assert served.job(job.id).epochs_done == 0
    assert served.job(job.id).memory_mib == 9000
    assert run_of(served, job).heard_at is not None


def test_a_sign_of_life_is_answered_with_a_digit_when_it_is_to_leave(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(priority=1)
    sign = {"rank": 0, "iternum": 3, "gpumem": 0, "meandur": 0.1}
    assert ask(old, "POST", f"/profiling/{job.id}", sign) == Reply(200, "")
    served.submit("urgent", gpus_min=2, gpus_max=2, priority=10)
    eventually(lambda: run_of(served, job).phase is RunPhase.STOPPING)
    assert ask(old, "POST", f"/profiling/{job.id}", sign) == Reply(200, "1")


def test_a_job_with_an_old_library_that_can_be_replaced_is_recorded(
    served: Serving, old: LegacyService
) -> None:
    def known() -> bool:
        kinds = served.scheduler.view.kinds.values()
        return any(kind.old_library for kind in kinds)

    job = served.running()
    form = b"meanIterDuration=0.5&endTime=1&gpuUsage=400&gpuMemUsage=90"
    assert ask(old, "POST", f"/signal_end_profiling/{job.id}/1", form).status == 200
    assert ask(old, "POST", f"/signal_end/{job.id}").status == 200
    sign = {"rank": 0, "iternum": 3, "gpumem": 0, "meandur": 0.1}
    assert ask(old, "POST", f"/profiling/{job.id}", sign, job.token, attempt="1").status == 200
    assert not known(), (
        "the oldest of all is made otherwise, and the library of today is no old one"
    )
    assert may_go_on(old, served.running("older"))
    eventually(known)


def test_a_memory_of_0_lowers_nothing(served: Serving, old: LegacyService) -> None:
    job = served.running(memory_mib=1000)
    ended(old, job, 4, gpumem=0)
    assert served.job(job.id).memory_mib == 1000


def test_a_run_that_numbers_its_epochs_is_counted_only_by_the_numbers(
    served: Serving, old: LegacyService
) -> None:
    job = served.running()
    ended(old, job, 4)
    done(old, job, 1)
    for steps in (8, 9, 10):  # as of several processes, which lose steps
        ended(old, job, steps)
    assert served.job(job.id).epochs_done == 1
    done(old, job, 2)
    done(old, job, 2)
    done(old, job, 1)
    assert served.job(job.id).epochs_done == 2
    newest, _ = served.reader.profiles(job.id, 10)
    assert (newest.epoch, newest.steps, newest.epoch_seconds) == (2, 10, 2.5)


def test_reports_lost_without_a_daemon_are_in_the_next_count(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(max_epochs=5)
    done(old, job, 3)
    assert served.job(job.id).epochs_done == 3
    done(old, job, 99)
    assert served.job(job.id).epochs_done == 5
    assert "epochs_beyond_max" in [fact.kind for fact in served.reader.story(job.id)]


def test_reports_at_the_same_time_are_counted_one_after_another(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(max_epochs=100)
    steps = [5, 10, 15, 20, 25] * 2
    posts = [threading.Thread(target=ended, args=(old, job, counted)) for counted in steps]
    for post in posts:
        post.start()
    for post in posts:
        post.join()
    assert served.job(job.id).epochs_done == 5


def test_a_report_of_a_run_that_is_over_counts_nothing(served: Serving, old: LegacyService) -> None:
    job = served.running(max_epochs=5, retries=3)
    ended(old, job, 4)
    served.cluster.end(job.id, 1, exit_code=1)
    eventually(lambda: served.job(job.id).run is None)
    ended(old, job, 9)
    assert served.job(job.id).epochs_done == 1
    done(old, job, 2)  # it says itself which one it is
    assert served.job(job.id).epochs_done == 2


def test_the_library_of_today_says_which_epoch_and_attempt_it_is(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(max_epochs=9, gpus_min=2, gpus_max=2)
    path = f"/profiling/{job.id}"
    for epoch in (1, 2, 2):  # several that have gathered, one of them again
        told = {"rank": 0, "iternum": 5 * epoch, "epochDur": 2.5, "epoch": epoch}
        assert ask(old, "POST", path, told, job.token, attempt="1").status == 200
    assert served.job(job.id).epochs_done == 2
    urgent = asked_to_stop(served, job)
    asked = f"/has_to_stop/{job.id}"
    assert ask(old, "GET", asked, token=job.token, attempt="1").text == "1"
    served.cluster.end(job.id, 1)
    request = pb.CancelJobRequest(job=urgent)
    served.people.CancelJob(request, metadata=by("ada"), timeout=10)
    eventually(lambda: served.job(job.id).attempts == 2)
    assert ask(old, "GET", asked, token=job.token, attempt="1").text == "1"
    late = {"rank": 0, "iternum": 15, "epochDur": 2.5}
    assert ask(old, "POST", path, late, job.token, attempt="1").status == 200
    assert served.job(job.id).epochs_done == 2, "that run is over"
    assert ask(old, "GET", asked, token=job.token).text == "0"
    assert ask(old, "POST", path, late, job.token).status == 200
    assert served.job(job.id).epochs_done == 3, "a report without a number is of the run that lives"
    for attempt in ("3", "0", "-1", "1e9"):
        assert ask(old, "POST", path, late, job.token, attempt=attempt).status == 400


def test_the_library_of_today_says_what_is_in_the_weights(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(max_epochs=9)

    def says(method: str, path: str, body: object, trained: str) -> int:
        headers = {"authorization": f"Bearer {job.token}", "x-attempt": "1", "x-trained": trained}
        data = json.dumps(body).encode()
        return old.answer(Request(method, f"/{path}/{job.id}", headers, data, True), HERE).status

    told = {"rank": 0, "iternum": 5, "epochDur": 2.5, "epoch": 3}
    assert says("POST", "profiling", told, "1") == 200
    assert (served.job(job.id).epochs_done, served.job(job.id).epochs_missing) == (3, 2)
    assert says("GET", "has_to_stop", None, "3") == 200
    assert served.job(job.id).epochs_missing == 0
    assert says("GET", "has_to_stop", None, "many") == 400


# --- stops ----------------------------------------------------------------------------------------


def asked_to_stop(served: Serving, job: Job) -> str:
    """Cancels this job in favour of the job with this id."""
    urgent = served.submit("urgent", gpus_min=2, gpus_max=2, priority=10)
    eventually(lambda: run_of(served, job).phase is RunPhase.STOPPING)
    return urgent


def test_it_is_told_to_stop_at_the_next_epoch_and_all_its_processes_alike(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(gpus_min=2, gpus_max=2, max_epochs=5)
    assert may_go_on(old, job)
    asked_to_stop(served, job)
    assert may_go_on(old, job), "this epoch it was let into"
    ended(old, job, 4)
    assert [may_go_on(old, job) for _ in range(3)] == [False] * 3
    served.cluster.end(job.id, 1)  # with 0, and without a word
    eventually(lambda: served.job(job.id).waiting)
    assert served.job(job.id).epochs_done == 1
    assert not may_go_on(old, job), "its attempt is over"


def test_a_last_epoch_is_not_interrupted_whatever_the_image_counts(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(gpus_min=2, gpus_max=2, max_epochs=4)
    assert may_go_on(old, job)
    asked_to_stop(served, job)
    done(old, job, 3)
    assert may_go_on(old, job)
    done(old, job, 4)
    assert may_go_on(old, job), "some ask when all is done"


def test_an_exit_without_any_report_is_the_end_of_a_job(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(max_epochs=5)
    served.cluster.end(job.id, 1)
    eventually(lambda: served.job(job.id).outcome)
    assert (served.job(job.id).outcome, served.job(job.id).reason) == (
        "succeeded",
        "finished, but reported none of its 5 epochs",
    )


def test_a_run_that_reports_its_end_has_ended(served: Serving, old: LegacyService) -> None:
    job = served.running(max_epochs=5)
    assert ask(old, "POST", f"/signal_end/{job.id}") == Reply(200, "")
    served.cluster.end(job.id, 1, exit_code=1)
    eventually(lambda: served.job(job.id).outcome)
    assert served.job(job.id).outcome == "succeeded"


def test_the_oldest_images_say_what_they_have_measured(served: Serving, old: LegacyService) -> None:
    job = served.running(memory_mib=1000)
    form = b"meanIterDuration=0.2&endTime=1&gpuUsage=3000&gpuMemUsage=45"
    assert ask(old, "POST", f"/signal_end_profiling/{job.id}/1", form) == Reply(200, "")
    assert served.job(job.id).memory_mib == 3000


# --- who speaks -----------------------------------------------------------------------------------


def test_without_a_token_this_machine_is_heard_and_others_where_jobs_are_elsewhere(
    served: Serving, old: LegacyService
) -> None:
    job = served.running()
    path = f"/has_to_stop/{job.id}"
    assert ask(old, "GET", path).status == 200
    refused = ask(old, "GET", path, caller=ELSEWHERE)
    assert (refused.status, refused.text) == (
        401,
        f"no token: {ELSEWHERE.address} is not this machine\n",
    )
    assert ask(listener(served, jobs_at=lambda _: ()), "GET", path, caller=ELSEWHERE).status == 200
    assert ask(old, "GET", path, caller=ELSEWHERE, token=job.token).status == 200


def test_without_a_token_a_pod_of_another_job_is_not_heard(served: Serving) -> None:
    job, other = served.running(), served.running()
    there = {"10.1.0.1": {job.id}, "10.1.0.2": {other.id}}
    old = listener(served, jobs_at=lambda address: there.get(address, ()))
    for address, status in (("10.1.0.1", 200), ("10.1.0.2", 403), ("192.168.0.1", 200)):
        reply = ask(old, "GET", f"/has_to_stop/{job.id}", caller=Caller(address, lambda: None))
        assert reply.status == status, address
    stranger = Caller("10.1.0.2", lambda: None)
    refused = ask(old, "POST", f"/signal_end/{job.id}", caller=stranger)
    assert refused.text == "no token: the pod at 10.1.0.2 is of another job\n"
    assert ask(old, "GET", f"/has_to_stop/{job.id}", caller=stranger, token=job.token).status == 200


def test_without_a_token_only_processes_of_the_jobs_user_are_heard(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(user=user_name(os.geteuid()))
    stranger = Caller("127.0.0.1", lambda: 65534)
    for method, path in (("GET", "has_to_stop"), ("POST", "signal_end"), ("POST", "end_epoch")):
        reply = ask(old, method, f"/{path}/{job.id}", {"done": 1}, caller=stranger)
        assert reply.status == 403
        assert f"has no jobs of {job.spec.user}" in reply.text
    assert run_of(served, job).heard_at is None
    assert ask(old, "GET", f"/has_to_stop/{job.id}", caller=Caller("::1", lambda: 0)).status == 200


@pytest.mark.parametrize("by_grpc", [True, False])
def test_a_job_that_has_sent_its_token_is_heard_only_with_it(
    served: Serving, old: LegacyService, by_grpc: bool
) -> None:
    job = served.running()
    path = f"/has_to_stop/{job.id}"
    assert ask(old, "GET", path, token="wrong").status == 403
    assert ask(old, "GET", path).status == 200, "a wrong token proves nothing"
    if by_grpc:
        served.jobs.StartEpoch(
            pb.StartEpochRequest(job_id=job.id, attempt=1), metadata=of(job), timeout=10
        )
    else:
        assert ask(old, "GET", path, token=job.token).status == 200
    assert ask(old, "GET", path).status == 401
    assert ask(old, "POST", f"/signal_end/{job.id}").status == 401
    assert ask(old, "GET", path, token=job.token).status == 200


def test_where_tokens_are_required_only_its_own_speaks_for_a_job(served: Serving) -> None:
    strict = listener(served, token_required=True)
    job, other = served.running(memory_mib=1000), served.running("other", memory_mib=1000)
    for path, body in (
        ("end_epoch", {"done": 1}),
        ("profiling", {"epochDur": 1}),
        ("signal_end", {}),
    ):
        refused = ask(strict, "POST", f"/{path}/{job.id}", body)
        assert (refused.status, refused.text[:9]) == (401, "no token:")
        refused = ask(strict, "POST", f"/{path}/{job.id}", body, token=other.token)
        assert (refused.status, refused.text) == (
            403,
            f"this token is not the token of job {job.id}\n",
        )
    assert served.job(job.id).epochs_done == 0
    assert not run_of(served, job).finished
    assert ask(strict, "POST", f"/end_epoch/{job.id}", {"done": 1}, token=job.token).status == 200


def test_a_wrong_token_is_worse_than_none(served: Serving, old: LegacyService) -> None:
    job = served.running()
    assert ask(old, "POST", f"/end_epoch/{job.id}", {"done": 1}, token="x").status == 403
    assert served.job(job.id).epochs_done == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/has_to_stop/ID", 200),
        ("POST", "/has_to_stop/ID", 405),
        ("GET", "/end_epoch/ID", 405),
        ("PUT", "/profiling/ID", 405),
        ("HEAD", "/has_to_stop/ID", 405),
        ("GET", "/submit", 405),
        ("GET", "/", 404),
        ("GET", "//has_to_stop/ID", 404),
        ("GET", "/has_to_stop", 400),
        ("GET", "/has_to_stop/", 400),
        ("GET", "/has_to_stop/ID/", 400),
        ("GET", "/has_to_stop/ID/1", 400),
        ("GET", "/has_to_stop/../ID", 400),
        ("GET", "/has_to_stop/%2e%2e%2fID", 400),
        ("GET", "/has_to_stop/ID%00", 400),
        ("GET", "/has_to_stop/' or 1=1 --", 400),
        ("GET", "/../../etc/passwd", 404),
        ("POST", "/submit/ID", 404),
        ("POST", "/signal_end_profiling/..%2fID/1", 400),
        ("GET", f"/has_to_stop/{uuid.UUID(int=4 << 76 | 2 << 62)}", 404),
    ],
)
def test_only_a_path_to_a_job_leads_somewhere(
    served: Serving, old: LegacyService, method: str, path: str, status: int
) -> None:
    job = served.running()
    reply = ask(old, method, path.replace("ID", job.id))
    assert reply.status == status
    assert status == 200 or reply.text not in ("0", "1")
    assert reply.text.count("\n") <= 1


def test_a_job_that_has_never_run_is_not_spoken_for(served: Serving, old: LegacyService) -> None:
    job_id = served.submit(held=True)
    refused = ask(old, "POST", f"/end_epoch/{job_id}", {"done": 1})
    assert (refused.status, served.job(job_id).epochs_done) == (400, 0)


def test_while_the_scheduler_stops_it_is_unavailable(served: Serving, old: LegacyService) -> None:
    job = served.running()
    served.inbox.close("the scheduler is stopping")
    refused = ask(old, "GET", f"/has_to_stop/{job.id}")
    assert (refused.status, refused.text) == (503, "the scheduler is stopping\n")


def test_what_is_remembered_of_runs_is_bounded(
    served: Serving, old: LegacyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "NUMBERED_MAX", 3)
    job = served.running()
    for attempt in range(2, 12):
        old._numbered[JobId(f"gone-{attempt}"), attempt] = OldReport()
    done(old, job, 1)
    assert list(old._numbered) == [(job.id, 1)]


# --- submissions ----------------------------------------------------------------------------------

Submit = Callable[..., Reply]
WANTED = {"jobName": "cifar", "scriptPath": "/custom/train.py", "maxEpochs": 7}


@pytest.fixture
def submit(old: LegacyService) -> Submit:
    def submitted(user: str = "ada", caller: Caller = HERE, **changes: Any) -> Reply:
        token = user_token(SECRET, user) if user else ""
        return ask(old, "POST", "/submit", {**WANTED, **changes}, token, caller)

    return submitted


def test_a_submission_is_answered_with_the_id_of_a_job(served: Serving, submit: Submit) -> None:
    reply = submit(username="ada", batchSize=32, isSingleGPU=True, disableGPUSharing=True)
    assert reply.status == 200
    spec = served.job(reply.text).spec
    assert (spec.name, spec.user, spec.max_epochs, spec.batch_size) == ("cifar", "ada", 7, 32)
    assert not spec.shareable


@pytest.mark.parametrize(
    ("user", "changes", "status", "words"),
    [
        ("", {}, 401, "no token: "),
        ("", {"username": "ada"}, 401, "no token: "),
        ("ada", {"username": "grace"}, 403, "username 'grace': this token belongs to ada"),
        ("mallory", {}, 403, "mallory may run nothing here"),
        ("ada", {"maxEpochs": -1}, 400, "maxEpochs -1: must be at least 1"),
        ("ada", {"estimatedMemory": 99999}, 409, "no GPU can hold 99,999 MiB"),
        ("ada", {"scriptPath": "train.py"}, 400, "scriptPath 'train.py': must be an absolute path"),
        ("ada", {"jobName": "a\nb"}, 400, r"jobName 'a\nb': must be one printable line"),
        ("ada", {"jobName": "\ud800"}, 400, r"jobName '\ud800': must be one printable line"),
        ("ada", {"dockerImage": "a b"}, 400, "dockerImage 'a b': must not contain blanks"),
    ],
)
def test_a_submission_that_is_refused_is_told_why_in_one_line(
    served: Serving, submit: Submit, user: str, changes: dict[str, Any], status: int, words: str
) -> None:
    refused = submit(user, **changes)
    assert (refused.status, refused.text.count("\n")) == (status, 1)
    assert refused.text.startswith(words)
    assert not served.scheduler.view.jobs


# --- images that ask at the end of an epoch, and exit before they save ----------------------------


def test_an_epoch_counts_when_the_run_may_go_on_to_save_it(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(gpus_min=2, gpus_max=2, max_epochs=5)
    for epoch in (1, 2):
        epoch_ended(old, job, 5 * epoch - 1)
        epoch_ended(old, job, 5 * epoch - 1)  # another process of the node
        assert served.job(job.id).epochs_done == epoch - 1
        assert may_go_on(old, job)
        assert may_go_on(old, job)
        assert served.job(job.id).epochs_done == epoch
    asked_to_stop(served, job)
    epoch_ended(old, job, 14)
    assert [may_go_on(old, job) for _ in range(2)] == [False] * 2
    assert served.job(job.id).epochs_done == 2, "the third was never saved"
    assert run_of(served, job).told_to_stop
    eventually(lambda: "epoch_unsaved" in [fact.kind for fact in served.reader.story(job.id)])
    served.cluster.end(job.id, 1)
    eventually(lambda: served.job(job.id).run is None or served.job(job.id).attempts == 2)
    assert (served.job(job.id).epochs_done, served.job(job.id).outcome) == (2, None)


def test_each_run_of_such_an_image_saves_an_epoch_before_it_stops(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(gpus_min=2, gpus_max=2, max_epochs=5)
    sign = {"rank": 0, "iternum": 1, "gpumem": 0, "meandur": 0.1}
    assert ask(old, "POST", f"/profiling/{job.id}", sign).status == 200
    asked_to_stop(served, job)
    epoch_ended(old, job, 4)
    assert may_go_on(old, job)
    epoch_ended(old, job, 9)
    assert not may_go_on(old, job)
    assert served.job(job.id).epochs_done == 1


def test_an_exit_in_a_thread_of_such_an_image_stops_nothing_and_costs_no_epoch(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(gpus_min=2, gpus_max=2, max_epochs=9)
    epoch_ended(old, job, 4)
    assert may_go_on(old, job)
    asked_to_stop(served, job)
    epoch_ended(old, job, 9)
    assert not may_go_on(old, job)
    sign = {"rank": 0, "iternum": 12, "gpumem": 0, "meandur": 0.1}
    assert ask(old, "POST", f"/profiling/{job.id}", sign).status == 200
    assert served.job(job.id).epochs_done == 2, "it went on, so it has saved"
    epoch_ended(old, job, 14)
    assert served.job(job.id).epochs_done == 3


def test_the_last_epoch_of_such_an_image_counts_at_once(
    served: Serving, old: LegacyService
) -> None:
    job = served.running(max_epochs=1)
    epoch_ended(old, job, 4)
    assert served.job(job.id).epochs_done == 1


# --- reports lost while no daemon ran -------------------------------------------------------------


@pytest.mark.parametrize("asks", [True, False])
def test_epochs_that_were_not_heard_are_in_the_count_of_steps(
    served: Serving, old: LegacyService, asks: bool
) -> None:
    job = served.running(max_epochs=12)
    tell = ended if asks else epoch_ended

    def told(by: LegacyService, steps: int, seconds: float) -> int:
        tell(by, job, steps, epochDur=seconds, meandur=1e-6)
        assert may_go_on(by, job)
        return served.job(job.id).epochs_done

    assert [told(old, steps, 1e-6) for steps in (4, 9)] == [1, 2]
    again = listener(served)
    assert told(again, 29, 1e-6) == 6
    assert told(again, 34, 1e-6) == 7
    assert told(again, 49, 1000.0) == 8, "there was no time for more"

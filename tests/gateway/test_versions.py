"""A gateway beside a daemon that is older or newer than it."""

from __future__ import annotations

import json

import pytest

from scheduler.v1 import scheduler_pb2 as pb
from tests.gateway.other_version import other_version
from tests.gateway.serving_http import Listener, Served, gateway
from tests.support import eventually

NEW_FIELD = b"\xf2\xfa\x01\x03new"  # number 4014, a string


def sentence(server: str, method: str) -> str:
    return f"the scheduler at {server} has a different version: it does not know {method}"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("Gateway/GetUsage", "/api/v1/usage"),
        ("Gateway/ListPolicies", "/api/v1/policies"),
        ("Gateway/ReadLog", "/api/v1/jobs/JOB/log"),
        ("Gateway/WatchEvents", "/api/v1/facts"),
        ("Scheduler/GetCluster", "/api/v1/cluster"),
    ],
)
def test_what_an_older_daemon_does_not_know_is_told_and_all_else_goes_on(
    method: str, path: str, served: Served
) -> None:
    job = served.daemon.submit("some", held=True)
    with (
        other_version(served.daemon, unknown=[method]) as (server, _),
        gateway(server) as made,
        Served(served.daemon, made).by() as client,
    ):
        answer = client.get(path.replace("JOB", job))
        assert answer.status_code == 501
        assert answer.json()["error"] == {
            "code": "unimplemented",
            "message": sentence(server, method),
            "field": None,
        }
        assert client.get(f"/api/v1/jobs/{job}").json()["job"]["state"] == "HELD"
        assert client.get("/").status_code == 200


def test_a_page_says_why_a_daemon_of_before_the_gateway_cannot_be_shown(served: Served) -> None:
    with (
        other_version(served.daemon, unknown=["Gateway/Identify"]) as (server, _),
        gateway(server) as made,
        Served(served.daemon, made).by() as client,
    ):
        answer = client.get("/api/v1/session")
        told = answer.json()["error"]["message"]
        assert (answer.status_code, told) == (501, sentence(server, "Gateway/Identify"))
        page = client.get("/")  # which asks for the session, and shows the line
        assert (page.status_code, page.headers["content-type"][:9]) == (200, "text/html")


def test_a_stream_says_that_the_daemon_has_no_events(served: Served) -> None:
    with (
        other_version(served.daemon, unknown=["Gateway/WatchEvents"]) as (server, _),
        gateway(server) as made,
        Served(served.daemon, made).by() as client,
        client.stream("GET", "/events") as stream,
    ):
        told = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert json.loads(told[6:]) == {
        "state": "away",
        "code": "unimplemented",
        "message": sentence(server, "Gateway/WatchEvents"),
    }


def older(method: str, reply: bytes) -> bytes:
    """What was added since the first release is not there."""
    if method == "Gateway/Identify":
        known = pb.IdentifyReply.FromString(reply)
        reply = pb.IdentifyReply(user=known.user, version="0.0.1").SerializeToString()
    if method == "Scheduler/ListJobs":
        listed = pb.ListJobsReply.FromString(reply)
        jobs = [pb.Job(id=job.id, spec=pb.JobSpec(name=job.spec.name)) for job in listed.jobs]
        reply = pb.ListJobsReply(jobs=jobs, total=listed.total).SerializeToString()
    if method == "Scheduler/GetJob":
        found = pb.GetJobReply.FromString(reply)
        reply = pb.GetJobReply(job=pb.Job(id=found.job.id)).SerializeToString()
    if method == "Scheduler/GetCluster":
        reply = pb.Cluster(gpus=[pb.GpuState()], users=[pb.UserTotal()]).SerializeToString()
    return reply


def newer(method: str, reply: bytes) -> bytes:
    """States, kinds of facts and fields that are not known here."""
    if method == "Gateway/Identify":
        known = pb.IdentifyReply.FromString(reply)
        known.version = "999.0.0"
        reply = known.SerializeToString()
    if method == "Scheduler/ListJobs":
        listed = pb.ListJobsReply.FromString(reply)
        for job in listed.jobs:
            job.state = "RESTING"
        reply = listed.SerializeToString()
    if method == "Scheduler/GetJob":
        found = pb.GetJobReply.FromString(reply)
        found.job.state = "RESTING"
        found.story.add(kind="sang", at=1.0, data_json='{"song": [1]}')
        reply = found.SerializeToString()
    if method == "Gateway/WatchEvents":
        watched = pb.WatchEventsReply.FromString(reply)
        for fact in watched.facts:
            fact.kind = "sang"
        reply = watched.SerializeToString()
    return reply + NEW_FIELD


def test_what_an_older_daemon_does_not_say_breaks_nothing(served: Served) -> None:
    job = served.daemon.submit("of-an-older-one", held=True)
    with (
        other_version(served.daemon, change=older) as (server, _),
        gateway(server) as made,
        Served(served.daemon, made).by() as client,
    ):
        session = client.get("/api/v1/session").json()
        assert (session["version"], session["gateway_version"] > "") == ("0.0.1", True)
        listed = client.get("/api/v1/jobs").json()
        assert (listed["total"] > 0, listed["next_cursor"], listed["events"]) == (True, "", "")
        assert client.get(f"/api/v1/jobs/{job}").json()["job"]["id"] == job
        assert len(client.get("/api/v1/cluster").json()["gpus"]) == 1


def test_what_a_newer_daemon_says_more_breaks_nothing(served: Served) -> None:
    job = served.daemon.submit("of-a-newer-one", held=True)
    with other_version(served.daemon, change=newer) as (server, _), gateway(server) as made:
        here = Served(served.daemon, made)
        with here.by() as client, here.listen() as page:
            states = {each["state"] for each in client.get("/api/v1/jobs").json()["jobs"]}
            assert states == {"RESTING"}
            found = client.get(f"/api/v1/jobs/{job}").json()
            assert found["job"]["state"] == "RESTING"
            assert "sang" in found["text"]["story"][-1]["text"]
            more = served.daemon.submit("more", held=True)
            eventually(lambda: more in page.jobs)


def test_both_versions_are_told_once_in_one_line(served: Served) -> None:
    with other_version(served.daemon, change=newer) as (server, _), gateway(server) as made:
        for user in ("ada", "bob"):
            with Served(served.daemon, made).by(user) as client:
                told = client.get("/api/v1/session").json()
        made.process.terminate()
        made.process.wait()
        assert made.process.stdout is not None
        (line,) = [line for line in made.process.stdout if "other_version" in line]
    assert f"daemon=999.0.0 gateway={told['gateway_version']}" in line


def test_two_gateways_of_one_daemon_know_the_same_sessions(served: Served) -> None:
    """Browsers do not tell the ports of a machine apart: its cookie goes to both."""
    with gateway(f"127.0.0.1:{served.daemon.server.port}") as second:
        code = served.code()
        with served.gateway.client() as browser, second.client() as other:
            assert browser.get(f"/login?code={code}").headers["location"] == "/"
            assert other.get(f"/login?code={code}").headers["location"] == "/login?refused=code"
            cookie = {"cookie": f"scheduler_session={browser.cookies['scheduler_session']}"}
            assert other.get("/", headers=cookie).status_code == 200
            origin = {"origin": served.gateway.url}
            assert browser.post("/logout", headers=origin).status_code == 200
        with gateway(f"127.0.0.1:{served.daemon.server.port}") as third, third.client() as later:
            assert later.get("/api/v1/session", headers=cookie).status_code == 401


def test_two_gateways_tell_the_same(served: Served) -> None:
    with (
        gateway(f"127.0.0.1:{served.daemon.server.port}") as second,
        served.listen() as page,
        Listener(Served(served.daemon, second).by()) as other,
    ):
        jobs = [served.daemon.submit("for-both", held=True) for _ in range(10)]
        eventually(lambda: jobs[-1] in page.jobs and jobs[-1] in other.jobs)
        both = set(page.facts) & set(other.facts)
        assert len(both) >= len(jobs)
        for each in (page, other):
            assert [number for number in each.facts if number in both] == sorted(both)
        second.process.kill()
        last = served.daemon.submit("for-one", held=True)
        eventually(lambda: last in page.jobs)

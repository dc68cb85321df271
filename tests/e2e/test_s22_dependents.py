"""S22, its first half: jobs that start after others, on a real daemon, also while it is killed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from tests.e2e.conftest import Daemons, Gates, Train
from tests.support import eventually

CPU = ("--num_gpus", "0")


def _has_lines(log: Path, least: int) -> bool:
    return len(log.read_text().split()) >= least


def test_a_job_starts_after_another_has_succeeded_and_is_skipped_if_it_fails(
    daemons: Daemons,
) -> None:
    daemon = daemons("0")
    for code, name in ((0, "good"), (7, "bad")):
        daemon.run("run-scheduler", *CPU, name, "--", "sh", "-c", f"exit {code}")
        daemon.run("run-scheduler", *CPU, "--after", name, f"{name}-next", "--", "echo", "next")
        after = f"{name}-next:skipped-or-succeeded"
        daemon.run("run-scheduler", *CPU, "--after", after, f"{name}-last", "--", "echo", "last")
    done = daemon.wait_state(
        good="FINISHED", bad="FAILED", **{"good-last": "FINISHED", "bad-last": "FINISHED"}
    )
    assert done["good-next"].state == "FINISHED"
    assert (done["bad-next"].state, done["bad-next"].reason) == ("SKIPPED", "bad failed")
    story = daemon.run("scheduler-state", "--extended", "bad-next").stdout
    assert "SKIPPED: bad failed" in story
    assert "bad-next" in daemon.run("scheduler-state", "--status", "SKIPPED").stdout


def test_an_ended_job_may_be_named_and_waiting_tells_of_a_skip(daemons: Daemons) -> None:
    daemon = daemons("0")
    daemon.run("run-scheduler", *CPU, "--wait", "first", "--", "true")
    done = daemon.run(
        "run-scheduler", *CPU, "--after", "first:failed", "--wait", "tidy", "--", "true"
    )
    assert done.returncode == 1
    said = "tidy: SKIPPED: first succeeded; this job was to start only if it failed"
    assert said in done.stderr
    assert "note: this job is skipped: first succeeded" in done.stderr
    done = daemon.run("run-scheduler", *CPU, "--after", "first", "--wait", "x", "--", "true")
    assert done.returncode == 0


def test_unknown_jobs_and_words_are_refused_in_one_line(daemons: Daemons) -> None:
    daemon = daemons("0")
    done = daemon.run("run-scheduler", *CPU, "--after", "nobody", "x", "--", "true")
    assert done.stderr == "run-scheduler: --after: no job matches 'nobody'\n"
    assert done.returncode == 2
    done = daemon.run("run-scheduler", *CPU, "--after", "a:suceeded", "x", "--", "true")
    assert done.returncode == 2
    assert "'a:suceeded': after the colon must be succeeded, failed, finished" in done.stderr
    assert daemon.state_of()["jobs"] == []


def test_a_waiting_job_tells_what_it_waits_for_and_a_kill_changes_nothing(
    daemons: Daemons, gates: Gates, train: Train
) -> None:
    daemon, gate = daemons("0"), gates("g")
    daemon.submit(*train(gate), *CPU, "--max_epochs", "1", "prepare")
    daemon.run("run-scheduler", *CPU, "--after", "prepare", "train", "--", "true")
    daemon.wait_state(prepare="RUNNING")
    told = daemon.state_of("train")["jobs"][0]
    assert told["reason"] == "after (waits for prepare (RUNNING, 0/1))"
    assert told["spec"]["after"] == [
        {"job": daemon.state_of("prepare")["jobs"][0]["id"], "when": "succeeded"}
    ]
    daemon.kill()
    daemon.start()
    assert daemon.state_of("train")["jobs"][0]["state"] == "QUEUED"
    gate.open()
    daemon.wait_state(prepare="FINISHED", train="FINISHED")


def test_cancelling_a_job_says_who_waits_for_it_and_cancels_them_if_asked(
    daemons: Daemons,
) -> None:
    daemon = daemons("0")
    for label in ("1", "2"):
        daemon.run("run-scheduler", *CPU, "--hold", f"a{label}", "--", "true")
        daemon.run("run-scheduler", *CPU, "--after", f"a{label}", f"b{label}", "--", "true")
        daemon.run(
            "run-scheduler", *CPU, "--after", f"b{label}:finished", f"c{label}", "--", "true"
        )
    done = daemon.run("scheduler-cancel-job", "a1")
    assert done.stderr == (
        "scheduler-cancel-job: 2 jobs wait for its end: b1, c1; what needs its success is skipped"
        " (--with_dependents cancels all of them)\n"
    )
    done = daemon.run("scheduler-cancel-job", "--with_dependents", "--output", "json", "a2")
    told = json.loads(done.stdout)["jobs"]
    assert [(job["name"], job["state"]) for job in told] == [
        ("a2", "CANCELED"),
        ("b2", "CANCELED"),
        ("c2", "CANCELED"),
    ]
    states = {job["name"]: job["state"] for job in daemon.state_of()["jobs"]}
    assert states == {
        **dict.fromkeys(("a1", "a2", "b2", "c2"), "CANCELED"),
        **dict.fromkeys(("b1", "c1"), "SKIPPED"),
    }


def test_each_step_of_a_graph_runs_once_while_the_daemon_is_killed(
    daemons: Daemons, tmp_path: Path
) -> None:
    daemon, log = daemons("0"), tmp_path / "log"
    log.touch(mode=0o666)
    log.chmod(0o666)
    step = {"command": ["sh", "-c", f"echo {{{{inputs.parameters.n}}}} >> {log}; sleep 0.2"]}
    names = [f"s{number}" for number in range(12)]
    tasks = [
        {
            "name": name,
            "template": "step",
            "dependencies": names[max(0, at - 2) : at] if at % 3 else names[max(0, at - 1) : at],
            "arguments": {"parameters": [{"name": "n", "value": name}]},
        }
        for at, name in enumerate(names)
    ]
    inputs = {"parameters": [{"name": "n"}]}
    templates = [
        {"name": "main", "dag": {"tasks": tasks}},
        {"name": "step", "inputs": inputs, "container": step},
    ]
    path = tmp_path / "graph.json"
    path.write_text(
        json.dumps(
            {"metadata": {"name": "g"}, "spec": {"entrypoint": "main", "templates": templates}}
        )
    )
    done = daemon.run("scheduler-run-workflow", str(path))
    assert done.returncode == 0, done.stderr
    for number in range(2, 12, 2):  # killed between and during steps
        eventually(partial(_has_lines, log, number))
        daemon.kill()
        daemon.start()
    daemon.wait_state(**dict.fromkeys(names, "FINISHED"))
    assert log.read_text().split() == names

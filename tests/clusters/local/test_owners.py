"""The run of a process: that of the runner above it, or of the environment that it was given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from scheduler.clusters.local.owners import belongs_to, run_of
from scheduler.core.model import JobId, PodState
from tests.clusters.machine import Machine
from tests.support import eventually

KEY = (JobId("a"), 1)
ESCAPED = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""


def test_what_descends_from_a_runner_is_its_runs() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as above:
        eventually(lambda: psutil.Process(above.pid).children())
        (below,) = psutil.Process(above.pid).children()
        assert run_of(below.pid, {above.pid: KEY}) == KEY
        assert run_of(above.pid, {above.pid: KEY}) == KEY
        assert run_of(above.pid, {below.pid: KEY}) is None
        below.kill()


def test_a_process_that_is_gone_belongs_to_no_run() -> None:
    assert run_of(999_999_999, {1: KEY}) is None


def test_a_process_is_marked_by_what_it_was_given() -> None:
    given = {**os.environ, "JOB_UUID": "a", "KUBEPROFILER_ATTEMPT": "1"}
    words = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        words, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)  # before it starts it has the environment of this process
        assert belongs_to(process.pid, KEY)
        assert not belongs_to(process.pid, (JobId("a"), 2))
        process.kill()
    assert not belongs_to(999_999_999, KEY)


def test_with_its_runner_goes_also_what_has_left_its_session(here: Machine, tmp_path: Path) -> None:
    told = tmp_path / "escaped"
    key = here.script(ESCAPED, str(told))
    here.wait_until(key, lambda pod: pod.state is PodState.RUNNING)
    eventually(lambda: told.exists() and told.read_text())
    escaped = int(told.read_text())
    started = here.state / "runs" / f"{key[0]}-{key[1]}" / "started.json"
    os.kill(json.loads(started.read_text())["runner"], 9)
    here.wait_until_over(key)
    eventually(lambda: not psutil.pid_exists(escaped))

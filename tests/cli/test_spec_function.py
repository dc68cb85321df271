"""`run-scheduler --spec FILE.py`."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.test_sweep import jobs
from tests.serving import Serving
from tests.support import BIN, eventually


def function(folder: Path, body: str) -> str:
    file = folder / "exp.py"
    file.write_text(body)
    return str(file)


def test_the_jobs_of_a_function_are_submitted(
    server: Serving, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "lib.py").write_text("RATES = [0.1, 0.2]\n")
    file = function(
        tmp_path,
        "from lib import RATES\n"
        "def spec():\n"
        "    print('thinking')\n"
        "    for lr in RATES:\n"
        "        yield {'name': f'lr{lr}', 'command': ['t', str(lr)], 'labels': {'k': 'v'},\n"
        "               'gpus_min': 0, 'gpus_max': 0}\n"
        "def one():\n"
        "    return [{'command': ['ls'], 'gpus_max': 0}]\n",
    )
    done = command("run-scheduler", "--hold", "--spec", file)
    assert done.exit_code == 0, done.err
    assert [job.spec.name for job in jobs(server)] == ["lr0.1", "lr0.2"]
    assert [job.id for job in jobs(server)] == done.out.split()
    assert {len(job.spec.labels) for job in jobs(server)} == {2}
    named = command("run-scheduler", "--hold", "--repeat", "2", "--spec", f"{file}:one", "mine")
    assert named.exit_code == 0, named.err
    assert [job.spec.name for job in jobs(server)[2:]] == ["mine-0", "mine-0"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def spec():\n    return 1 / 0\n", "ZeroDivisionError: division by zero\n"),
        ("import nosuchmodule\n", "ModuleNotFoundError"),
        ("def other(): pass\n", "has no function 'spec'"),
        ("def spec(): return [{'name': {1}}]\n", "returned what is not JSON"),
        ("import sys\nsys.exit()\n", "called sys.exit()"),
        ("def spec(): return 3\n", "returned no list of jobs: 3"),
        ("import os\nos.kill(os.getpid(), 9)\n", "was killed by SIGKILL"),
        ("def spec(): return []\n", "returned no job"),
        ("def spec(): return [{'name': 'x', 'comand': []}]\n", "did you mean 'command'?"),
    ],
)
def test_a_function_that_fails_says_why_once_and_submits_nothing(
    body: str, told: str, server: Serving, tmp_path: Path
) -> None:
    file = function(tmp_path, body)
    words = [str(BIN / "run-scheduler"), "--spec", file]
    words += ["--server", f"127.0.0.1:{server.server.port}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count(told) == 1, done.stderr
    assert "spec_function" not in done.stderr  # no line of ours
    assert not jobs(server)


def test_a_function_that_hangs_ends_with_the_command(tmp_path: Path) -> None:
    """^C reaches the command alone: the function's process group is another one."""
    started = tmp_path / "started"
    body = f"import time, pathlib, os\ndef spec():\n    pathlib.Path({str(started)!r})"
    file = function(tmp_path, f"{body}.write_text(str(os.getpid()))\n    time.sleep(600)\n")
    words = [str(BIN / "run-scheduler"), "--spec", file]
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as asked:
        eventually(lambda: started.exists() and started.read_text())
        asked.send_signal(signal.SIGINT)
        out, err = asked.communicate(timeout=10)
    assert (asked.returncode, out, err) == (130, "", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)

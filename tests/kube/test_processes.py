"""No process outlives the test run that started it, however that run ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.kube.processes import Process
from tests.support import eventually


def sleeper(folder: Path) -> Process:
    return Process("sleeper", ["sleep", "infinity"], folder / "sleeper.log")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_the_run_however_that_ends(tmp_path: Path, end: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert run.stdout is not None
    started = psutil.Process(int(run.stdout.readline()))
    assert started.is_running()
    run.send_signal(end)
    run.communicate()
    eventually(lambda: not started.is_running())


def test_it_does_not_end_with_the_thread_that_started_it(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    thread = threading.Thread(target=process.start)
    thread.start()
    thread.join()
    process.check()
    process.kill()


def test_it_may_have_several_lives(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    process.start()
    first = process.pid
    process.start()
    assert process.pid == first
    process.kill()
    assert not process.alive
    process.start()
    assert process.pid != first
    process.stop()
    assert not process.alive


def test_what_ended_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = Process("talker", ["sh", "-c", "echo no such flag"], tmp_path / "talker.log")
    process.start()
    eventually(lambda: not process.alive)
    with pytest.raises(AssertionError, match=r"talker has ended.*\n.*no such flag"):
        process.check()


def test_no_port_is_given_twice() -> None:
    """Neither to one process, nor to two that live at the same time."""
    words = [sys.executable, "-c", ASKING, "400"]
    askers = [
        subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    given = [json.loads(asker.stdout.readline()) for asker in askers if asker.stdout]
    for asker in askers:
        asker.communicate()
    assert len({port for ports in given for port in ports}) == 800


ASKING = """
import json, sys
from tests.kube.processes import free_port
print(json.dumps([free_port() for _ in range(int(sys.argv[1]))]), flush=True)
sys.stdin.read()
"""
RUN = """
import pathlib, sys, threading
from tests.kube.processes import Process
process = Process("sleeper", ["sleep", "infinity"], pathlib.Path(sys.argv[1], "log"))
process.start()
print(process.pid, flush=True)
threading.Event().wait()
"""

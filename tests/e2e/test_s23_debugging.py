"""S23: a job that waits for a debugger has its GPU for itself, and not for ever."""

from __future__ import annotations

import socket
import time

import pytest

from tests.e2e.conftest import Daemons, Gates, Train
from tests.kube.processes import free_port
from tests.support import Daemon, eventually

LISTEN = (
    "from socket import *; s = create_server(('127.0.0.1', {port})); c = s.accept(); "
    "print('attached', flush=True); import time; time.sleep(1000)"
)


@pytest.fixture
def impatient(daemons: Daemons, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    monkeypatch.setenv("SCHEDULER_LIMITS__DEBUG_WAIT_SECONDS", "10")
    return daemons("1x16384")


def _waiting(daemon: Daemon, port: int) -> str:
    words = ("python3", "-c", LISTEN.format(port=port))
    flags = ("--no_tracking", "--estimated_memory", "1000", "--debug_wait", str(port))
    job_id = daemon.submit(*flags, "dbg", "--", *words)
    daemon.wait_state(dbg="RUNNING")
    return job_id


def test_nobody_attaches_and_the_gpu_is_freed(impatient: Daemon) -> None:
    port = free_port()
    _waiting(impatient, port)
    impatient.submit("--estimated_memory", "1000", "other", "--", "sleep", "1000")
    job = impatient.wait_state(dbg="CANCELED", other="RUNNING")["dbg"]
    why = f"debug_timeout: no debugger connected to port {port} in 10s"
    assert job.reason == f"cancelled by {why}"


def test_it_is_never_beside_another_job(daemons: Daemons) -> None:
    daemon = daemons("1x16384")
    _waiting(daemon, free_port())
    daemon.submit("--estimated_memory", "1000", "other", "--", "sleep", "1000")
    daemon.wait_state(other="QUEUED")
    assert "--disable_gpu_sharing" in daemon.run("scheduler-state", "dbg", "--extended").stdout
    daemon.run("scheduler-cancel-job", "dbg")
    daemon.wait_state(other="RUNNING")


def test_whoever_has_attached_may_think_as_long_as_they_like_also_over_a_restart(
    impatient: Daemon,
) -> None:
    port = free_port()
    job_id = _waiting(impatient, port)
    eventually(lambda: _connected(port))

    def visited() -> list[str]:
        return [fact.data_json for fact in impatient.story(job_id) if fact.kind == "run_visited"]

    eventually(visited)
    impatient.kill()
    impatient.start()
    started = impatient.wait_state(dbg="RUNNING")["dbg"].started_at
    eventually(lambda: time.time() > started + 10 + 2 * 2.0 + 1)  # two looks after the time
    impatient.wait_state(dbg="RUNNING")
    assert len(visited()) == 1


def _connected(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)) as made:
            time.sleep(3)  # longer than from one look to the next
            return bool(made)
    except OSError:
        return False


def test_who_trains_is_not_waited_for(impatient: Daemon, gates: Gates, train: Train) -> None:
    gate = gates("g")
    words = (*train(gate), "--max_epochs", "2", "--debug_wait", str(free_port()))
    impatient.submit(*words, "trains")
    started = impatient.wait_state(trains="RUNNING")["trains"].started_at
    gate.await_ring()
    eventually(lambda: time.time() > started + 10 + 2 * 2.0 + 1)
    impatient.wait_state(trains="RUNNING")


def test_the_script_is_told_the_port(daemons: Daemons) -> None:
    daemon = daemons("1x16384")
    job_id = daemon.submit("--debug_wait", "3000", "dbg", "--", "sh", "-c", "echo $DEBUG_WAIT_PORT")
    daemon.wait_state(dbg="FINISHED")
    assert daemon.run("scheduler-get-logs", job_id).stdout == "3000\n"

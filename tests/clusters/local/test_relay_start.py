"""The relay beside real trainings on this machine, and a gateway that is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.clusters.local.cluster import Tracking
from scheduler.clusters.local.runner import processes
from tests.clusters.machine import Machine, machine
from tests.relay.receiver import Receiver
from tests.support import eventually

BY_HTTP = """
import os, sys, urllib.request
url = os.environ["MLFLOW_TRACKING_URI"] + "/write?db=training&precision=s"
def log(step):
    line = f"loss,rank=0 value={step} {1_700_000_000 + step}"
    urllib.request.urlopen(urllib.request.Request(url, line.encode(), method="POST"))
"""
BY_DATAGRAM = """
import os, socket, sys
ear = os.environ["JOBMONITOR_TELEGRAF_HOST"], int(os.environ["JOBMONITOR_TELEGRAF_PORT"])
mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def log(step):
    mouth.sendto(f"loss,rank=0 value={step} {1_700_000_000 + step}".encode(), ear)
"""
IN_TURNS = """
for step in range(50):
    log(step)
print("half", flush=True)
while not os.path.exists(sys.argv[1]):
    pass
for step in range(50, 100):
    log(step)
"""


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path)


@pytest.fixture
def tracked(tmp_path: Path, receiver: Receiver) -> Iterator[Machine]:
    tracking = Tracking(receiver.url, linger_seconds=60.0)
    with machine(tmp_path / "state", tracking=tracking, heartbeat_seconds=1) as made:
        receiver.start()
        yield made
        receiver.kill()


def relays() -> set[int]:
    """All on this machine."""
    found = set()
    for pid, stat in processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if stat.alive and b"scheduler/relay/__main__.py" in words:
            found.add(pid)
    return found


@pytest.mark.parametrize("log", [BY_HTTP, BY_DATAGRAM], ids=["http", "datagrams"])
def test_nothing_is_lost_and_nothing_comes_twice_while_the_gateway_is_killed(
    tracked: Machine, receiver: Receiver, tmp_path: Path, log: str
) -> None:
    go_on = tmp_path / "go_on"
    key = tracked.script(log + IN_TURNS, str(go_on))
    eventually(lambda: len(receiver.lines) > 0)
    receiver.kill()
    tracked.wait_for_output(key, "half\n")
    go_on.touch()
    pod = tracked.wait_until_over(key)
    assert (pod.state, tracked.log_text(key)) == ("succeeded", "half\n")
    receiver.start()
    wanted = [f"loss,rank=0 value={step} {1_700_000_000 + step}" for step in range(100)]
    eventually(lambda: len(receiver.lines) >= 100)
    assert receiver.lines == wanted


def test_a_line_sent_by_a_training_that_ends_at_once_arrives(
    tracked: Machine, receiver: Receiver
) -> None:
    key = tracked.script(BY_DATAGRAM + "log(7)")
    assert tracked.wait_until_over(key).state == "succeeded"
    eventually(lambda: receiver.lines == ["loss,rank=0 value=7 1700000007"])


def test_a_training_that_logs_nothing_has_no_relay(tracked: Machine) -> None:
    before = relays()
    key = tracked.script("print(1)")
    tracked.wait_until_over(key)
    assert relays() <= before
    assert not (tracked.state / "relays").exists()


def test_a_relay_ends_when_everything_is_delivered(tracked: Machine, receiver: Receiver) -> None:
    before = relays()
    key = tracked.script(BY_HTTP + "log(7)")
    tracked.wait_until_over(key)
    eventually(lambda: relays() <= before)
    assert len(receiver.lines) == 1
    spools = list(tracked.state.parent.glob(f"snapshots/.tracking/{key[0]}/1/spools/*"))
    assert spools == []


def test_a_job_can_do_without(tracked: Machine) -> None:
    key = tracked.script("import os; print(*os.environ)", no_tracking=True)
    tracked.wait_until_over(key)
    assert "MLFLOW" not in tracked.log_text(key)
    assert "JOBMONITOR" not in tracked.log_text(key)


def test_a_job_keeps_its_own_server_and_ours_is_not_told_its_token(tracked: Machine) -> None:
    text = "import os; print(*(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')"
    env = (("MLFLOW_TRACKING_URI", "http://elsewhere:5000"), ("WANDB_MODE", "online"))
    key = tracked.script(text, env=env)
    tracked.wait_until_over(key)
    lines = tracked.log_text(key).splitlines()
    assert [line for line in lines if line.startswith(("MLFLOW", "WANDB"))] == [
        "MLFLOW_TRACKING_URI=http://elsewhere:5000",
        "WANDB_MODE=online",
    ]

"""The relay beside real trainings on this machine, and a gateway that is killed meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.clusters.local.cluster import Tracking
from scheduler.clusters.local.runner import processes
from tests.clusters.machine import Machine, machine
from tests.relay.receiver import Receiver
from tests.relay.written_files import history, log, scalars
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


WRITES = """
import os, sys
path, go_on, *portions = sys.argv[1:]
file = open(path, "ab", buffering=0)
for portion in portions:
    file.write(bytes.fromhex(portion))
    print("written", flush=True)
    while not os.path.exists(go_on):
        pass
"""


def test_a_file_that_a_training_has_open_is_read_wherever_it_is(
    tracked: Machine, receiver: Receiver, tmp_path: Path
) -> None:
    """Also by a relay that takes the place of one that was killed."""
    path, go_on = tmp_path / "events.out.tfevents.1700000000.host", tmp_path / "go_on"
    portions = [scalars(range(3)).hex(), scalars(range(3, 6)).hex()]
    before = relays()
    key = tracked.script(WRITES, str(path), str(go_on), *portions)
    eventually(lambda: [point[4] for point in receiver.points] == [0, 1, 2])
    for pid in relays() - before:
        os.kill(pid, signal.SIGKILL)
    go_on.touch()
    tracked.wait_until_over(key)
    eventually(lambda: [point[4] for point in receiver.points] == [*range(6)])


def test_a_file_that_was_closed_at_once_is_read_if_it_bears_the_process(
    tracked: Machine, receiver: Receiver, tmp_path: Path
) -> None:
    text = f"""
import os, pathlib
runs = pathlib.Path("runs"); runs.mkdir()
name = f"events.out.tfevents.1700000000.host.{{os.getpid()}}.0"
(runs / name).write_bytes(bytes.fromhex("{scalars(range(3)).hex()}"))
(runs / "events.out.tfevents.1700000000.host.1.0").write_bytes(b"of another job")
"""
    tracked.wait_until_over(tracked.script(text, custom_dir=str(tmp_path)))
    eventually(lambda: [point[4] for point in receiver.points] == [0, 1, 2])
    assert not any("lost" in entry for entry in receiver.entries)


def test_folders_of_the_job_are_read(tracked: Machine, receiver: Receiver) -> None:
    text = f"""
import os, pathlib
for number, folder in enumerate(("TENSORBOARD_DIR", "JOBMONITOR_RESULTS_DIR")):
    path = pathlib.Path(os.environ[folder], f"events.out.tfevents.170000000{{number}}.host")
    path.write_bytes(bytes.fromhex("{scalars([7]).hex()}"))
wandb = pathlib.Path(os.environ["WANDB_DIR"], "wandb", "offline-run-1", "run-x.wandb")
wandb.parent.mkdir(parents=True)
wandb.write_bytes(bytes.fromhex("{log(history(8, acc=1)).hex()}"))
"""
    tracked.wait_until_over(tracked.script(text))
    eventually(lambda: sorted(point[4] for point in receiver.points) == [7, 7, 8])

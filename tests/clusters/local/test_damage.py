"""A damaged file of a run: that run is lost at most, and no other run or process is harmed."""

import json
import os
import random
import subprocess
import uuid
from pathlib import Path

import pytest

from scheduler.clusters.local.run import _read, _Started
from scheduler.core.model import Remove
from tests.clusters.machine import is_alive, machine
from tests.support import eventually

FLIPS = int(os.environ.get("FLIPS", "40"))
FILES = ("launch.json", "started.json", "ended.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content",
    ['{"exit_code": "three"}', '{"exit_code": 3}', "[" * 50_000, "\xff\xfe", '{"reason": 7}', "[]",
     '{"shares": 3, "log": {}}', '{"runner": "one", "pid": null}', '{"log": "x", "shares": [[]]}'],
)  # fmt: skip
def test_garbage_in_a_run_does_not_keep_the_daemon_from_starting(
    tmp_path: Path, name: str, content: str
) -> None:
    with machine(tmp_path / "state") as here:
        well = here.up()
        folder = here.state / "runs" / f"{uuid.uuid4()}-1"
        folder.mkdir()
        (folder / name).write_text(content, encoding="latin-1")
        (here.state / "runs" / f"{uuid.uuid4()}-1").touch()  # not even a folder
        here.start_daemon()
        for _ in range(2):
            pods = {(pod.job_id, pod.attempt): pod for pod in here.cluster.observe().pods}
            assert pods[well].alive


def test_a_damaged_pid_kills_no_process_of_another(tmp_path: Path) -> None:
    with (
        machine(tmp_path / "state") as here,
        subprocess.Popen(["sleep", "1000"], start_new_session=True) as bystander,
    ):
        try:
            key = here.up()
            started = here.read_started(key)
            file = here.folder(key) / "started.json"
            file.write_text(file.read_text().replace(str(started["runner"]), str(bystander.pid)))
            here.start_daemon()
            here.cluster.observe()
            here.cluster.perform(Remove(*key))
            eventually(lambda: not is_alive(started["pid"]))
            assert is_alive(bystander.pid)
        finally:
            bystander.kill()


@pytest.mark.parametrize("pid", [-1, 0, 1, 2**31, "7"])
def test_what_cannot_be_a_pid_of_a_run_is_none(tmp_path: Path, pid: object) -> None:
    """To the kernel, -1 is every process."""
    file = tmp_path / "started.json"
    file.write_text(json.dumps({"runner": pid, "pid": pid}))
    found = _read(file, _Started)
    assert found
    assert (found.runner, found.pid) == (None, None)


def test_flipped_bytes_in_the_files_of_a_run_harm_no_other(tmp_path: Path) -> None:
    with machine(tmp_path / "state") as here:
        well, ended = here.up(), here.script("exit(3)")
        here.wait_until_over(ended)
        files = [here.folder(ended) / name for name in FILES]
        intact = [file.read_bytes() for file in files]
        for seed in range(FLIPS):
            flip(files, random.Random(seed))
            here.start_daemon()
            pods = {(pod.job_id, pod.attempt): pod for pod in here.cluster.observe().pods}
            for file, content in zip(files, intact, strict=True):
                file.write_bytes(content)
            assert pods[well].alive, seed
            assert not pods[ended].alive, seed


def flip(files: list[Path], dice: random.Random) -> None:
    file = dice.choice(files)
    content = bytearray(file.read_bytes().rstrip())
    for _ in range(dice.choice((1, 3))):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    file.write_bytes(content)

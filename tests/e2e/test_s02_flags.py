"""S02: flags have their effect, and an error in them is reported in one line that names the
flag."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import TRAIN, Daemons

REFUSED = [
    ("--image img:new --is_single_gpu False --disable_gpu_sharing x", "'x'"),
    ("--image img:new --script_path /custom/t.py", "JOB_NAME"),
    ("--image img:new --script_path /t.py --est_nhours 0.5 j", "must be more than 1"),
    ("--image img:new --script_path /t.py --port_mapping 31346-6006 j", "31346-6006"),
    ("--image img:new --script_path /t.py --batch_size 0 j", "--batch_size"),
    ("--image img:new --script_path /t.py --max_epochs nan j", "nan"),
    ("--image img:new --script_path /t.py --min_gpus 3 --max_gpus 2 j", "--min_gpus"),
    ("--image img:new --script_path /t.py --env JOB_UUID=x j", "JOB_UUID"),
    ("--image img:new --script_path /t.py --is_single_gpu true --num_gpus 4 j", "is_single_gpu"),
]


@pytest.mark.parametrize(("words", "culprit"), REFUSED)
def test_an_impossible_submission_is_refused_with_its_reason(
    daemons: Daemons, words: str, culprit: str
) -> None:
    daemon = daemons()
    done = daemon.run("run-scheduler", *words.split())
    assert done.returncode == 2, done.stderr
    assert culprit in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert daemon.state_of()["jobs"] == []


def test_hostile_values_are_refused(daemons: Daemons) -> None:
    daemon = daemons()
    script = ("--script_path", "/t.py")
    for words, culprit in [
        (("--image", "img\nnew", *script, "j"), "image"),
        (("--image", "img", *script, "j" * 100_000), "job_name"),
    ]:
        done = daemon.run("run-scheduler", *words)
        assert done.returncode == 2, done.stderr
        assert culprit in done.stderr
        assert len(done.stderr) < 1000
    assert daemon.state_of()["jobs"] == []


def test_booleans_take_a_value_or_none(daemons: Daemons) -> None:
    daemon = daemons("0")
    base = ("run-scheduler", "--image", "i", "--script_path", str(TRAIN), "--hold")
    daemon.run(*base, "--is_single_gpu", "False", "--num_gpus", "0", "plain")
    daemon.run(*base, "--num_gpus", "0", "--disable_gpu_sharing", "--", "--epochs", "3")
    (job,) = daemon.state_of("--extended")["jobs"]
    assert job["name"] == "plain"
    assert job["spec"]["disable_gpu_sharing"] is False
    daemon.run(*base, "--num_gpus", "0", "--disable_gpu_sharing", "--priority", "2", "alone")
    job = next(j for j in daemon.state_of("--extended")["jobs"] if j["name"] == "alone")
    assert job["spec"]["disable_gpu_sharing"] is True


def test_a_dry_run_shows_the_command_that_would_run(daemons: Daemons, tmp_path: Path) -> None:
    daemon = daemons()
    (tmp_path / "t.py").touch()
    words = ("--image", "img:new", "--script_path", "/custom/t.py", "--custom_dir", str(tmp_path))
    done = daemon.run(
        "run-scheduler", *words, "--dry_run", "--output", "json", "j", "--", "--epochs", "3", "a b"
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["command"][-3:] == ["--epochs", "3", "a b"]
    assert str(tmp_path / "t.py") in shown["command"]
    assert shown["env"]["EPOCHS_DONE"] == "0"
    assert daemon.state_of()["jobs"] == []

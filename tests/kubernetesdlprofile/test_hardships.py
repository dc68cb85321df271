"""Processes that fork, spawn, are killed, or run in a notebook; bad disks and values."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubernetesdlprofile import wire
from tests.kubernetesdlprofile.conftest import Environment, Run, Start

BEGIN = """
import os, sys
from kubernetesdlprofile import kubeprofiler
api = kubeprofiler.KubeProfiler()
"""
TRAIN = (
    BEGIN
    + """
for epoch in api.epochs():
    api.measure()
"""
)


def unsent(environment: Environment) -> list[Any]:
    folder = Path(environment["KUBEPROFILER_SNAPSHOTS"])
    return [json.loads(path.read_text()) for path in sorted(folder.rglob(".kubeprofiler-*.json"))]


# --- the process --------------------------------------------------------------------------------


def wait_until_written(script: subprocess.Popen[str], environment: Environment) -> None:
    while not any(unsent_or_half(environment)):
        assert script.poll() is None


def unsent_or_half(environment: Environment) -> list[Any]:
    try:
        return unsent(environment)
    except ValueError:
        return []


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_epochs_survive_whatever_ends_the_process_and_the_next_run_delivers_them(
    start_script: Start,
    run_script: Run,
    job_environment: Environment,
    recorder: Any,
    place: Any,
    end: str,
) -> None:
    place.close()
    source = BEGIN + "for n in range(3): api.end_epoch()\nsys.stdin.readline()\n" + end
    script = start_script(source, job_environment)
    wait_until_written(script, job_environment)
    script.communicate("\n")
    place.open()
    done = run_script(BEGIN + "api.start_epoch()", job_environment, KUBEPROFILER_ATTEMPT="2")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(recorder.epochs()) <= {1, 2, 3}
    assert 3 in recorder.epochs()
    assert {p.attempt for message in recorder.of("EndEpoch") for p in message.profiles} == {1}
    assert unsent(job_environment) == [[]]


def test_a_file_of_another_job_or_with_nonsense_is_ignored(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    folder = Path(job_environment["KUBEPROFILER_SNAPSHOTS"], job_environment["JOB_UUID"])
    folder.mkdir(parents=True)
    strange = wire.Profile(job_environment["JOB_UUID"], 1, 0, 3, 1.0, 1.0, 1.0, 1, 1.0, 1)._asdict()
    wrong = json.dumps([{**strange, "steps": "many"}, {**strange, "job_id": "another"}])
    for words in (
        wrong,
        "{",
        "[1]",
        '[{"epoch": 3}]',
        "null",
        "[[]]",
        '"words"',
        "\x00",
        "[" * 100_000,
    ):
        (folder / ".kubeprofiler-0.json").write_text(words)
        assert run_script(TRAIN, job_environment, EPOCHS_TO_BE_DONE="1").returncode == 0
    assert set(recorder.epochs()) == {1}


def test_a_process_that_leaves_without_goodbye_has_told_its_epochs(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    source = TRAIN + "api._courier.flush(30)\nos._exit(3)"
    assert run_script(source, job_environment).returncode == 3
    assert recorder.epochs() == [1, 2, 3, 4, 5]
    assert "Finish" not in recorder.methods()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_mean_what_they_mean_without_the_library(
    start_script: Start, job_environment: Environment, recorder: Any, number: signal.Signals
) -> None:
    default = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # also under nohup
    source = default + BEGIN
    source += "api.start_epoch(); print('on', flush=True)\nwhile True: api.measure()"
    script = start_script(source, job_environment)
    assert script.stdout is not None
    assert script.stdout.readline() == "on\n"
    script.send_signal(number)
    script.communicate()
    assert script.returncode == -number
    assert "Finish" not in recorder.methods()


def test_a_child_that_is_forked_in_the_middle_of_an_epoch_goes_its_own_way(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    source = """
api.start_epoch()
child = os.fork()  # as a loader of data does
if child == 0:
    api.measure()
    os._exit(7)
_, status = os.waitpid(child, 0)
api.measure()
api.end_epoch()
sys.exit(os.WEXITSTATUS(status))
"""
    assert run_script(BEGIN + source, job_environment).returncode == 7
    assert recorder.epochs() == [1]


def test_a_spawned_process_that_is_given_the_profiler_has_its_own(
    job_environment: Environment, recorder: Any, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        """
import multiprocessing
from kubernetesdlprofile import kubeprofiler
def train(api):
    assert api is kubeprofiler.KubeProfiler()
    for epoch in api.epochs():
        api.measure()
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(
        target=train, args=(kubeprofiler.KubeProfiler(),))
    worker.start()
    worker.join()
    raise SystemExit(worker.exitcode)
"""
    )
    words = [sys.executable, str(script)]
    done = subprocess.run(words, env=job_environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert recorder.epochs() == [1, 2, 3, 4, 5]


def test_in_a_notebook_a_stop_ends_the_cell_and_the_next_one_may_go_on(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    notebook = f"""
import code, traceback
cells = [{BEGIN!r}, "for epoch in api.epochs(): api.measure()", "print(api.epoch)", {BEGIN!r}]
names = {{}}
for cell in cells:
    try:
        exec(cell, names)
    except SystemExit as stopped:
        print("stopped", stopped.code)
"""
    recorder.stop_at = 2
    assert run_script(notebook, job_environment).stdout == "stopped 85\n2\n"


# --- what it is given ---------------------------------------------------------------------------

VARIABLES = [
    *("JOB_UUID", "JOB_RESTARTED", "EPOCHS_DONE", "EPOCHS_TO_BE_DONE", "BATCH_SIZE"),
    *("TRAINING_SET_SIZE", "NUM_GPUS", "NUM_NODES", "NODE_RANK", "RANK", "LOCAL_RANK"),
    *("NODELIST", "HEARTBEAT_FREQ", "RESERVED_MEM", "KUBEPROFILER_SERVER", "KUBEPROFILER_HTTP"),
    *("KUBEPROFILER_TOKEN", "KUBEPROFILER_ATTEMPT", "KUBEPROFILER_HEARTBEAT_SECONDS"),
    *("KUBEPROFILER_SNAPSHOTS", "KUBEPROFILER_LAST_WORDS", "KUBEPROFILER_STOP_EXIT_CODE"),
    *("KUBEPROFILER_ENFORCE_MEM", "KUBEPROFILER_PRETEND_MEMORY_MIB"),
]


@pytest.mark.parametrize(
    "text", ["", "N/A", "-1", "9" * 400, "1e400", "é\u202e", " ", "../..", "\n"]
)
def test_no_value_of_any_variable_ends_a_training(
    run_script: Run, bare_environment: Environment, tmp_path: Path, text: str
) -> None:
    here = tmp_path / "a" / "b" / "c"  # the folder for snapshots may be relative to it
    here.mkdir(parents=True)
    source = f"import os; os.chdir({str(here)!r})\n" + TRAIN.replace("api.epochs()", "range(3)")
    source += "    api.start_epoch(); api.measure(); api.end_epoch()\nprint(api.epoch)"
    environment = {**bare_environment, **dict.fromkeys(VARIABLES, text), "TMPDIR": str(tmp_path)}
    done = run_script(source, environment, patient=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    told = done.stderr.splitlines()
    assert all(line.startswith("[KUBE_API_LIBRARY] ") for line in told)
    assert len(told) == len(set(told)) <= len(VARIABLES) + 2


@pytest.mark.parametrize("server", ["127.0.0.1:1", "no.such.host.invalid", "[::1]:1"])
@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_without_a_network_training_goes_on_with_one_warning(
    run_script: Run, job_environment: Environment, server: str, transport: str
) -> None:
    source = TRAIN + "print(api.epoch)"
    if transport == "http":
        source = "import sys; sys.modules['grpc'] = None\n" + source
    done = run_script(source, job_environment, patient=False, KUBEPROFILER_SERVER=server)
    assert (done.returncode, done.stdout) == (0, "5\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("[KUBE_API_LIBRARY] no answer from the scheduler (")


def test_without_any_disk_training_goes_on(
    run_script: Run, job_environment: Environment, place: Any
) -> None:
    place.close()
    source = (
        TRAIN + "print(api.epoch, api.save('last.ckpt', lambda name: open('/dev/full/x', 'w')))"
    )
    more = {
        "KUBEPROFILER_SNAPSHOTS": "/proc/no",
        "TMPDIR": "/proc/no",
        "KUBEPROFILER_LAST_WORDS": "/dev/full",
    }
    done = run_script(source, job_environment, patient=False, **more)
    assert (done.returncode, done.stdout) == (0, "5 False\n")
    told = done.stderr.splitlines()
    assert all(line.startswith("[KUBE_API_LIBRARY] ") for line in told)
    assert len(told) == 4  # the folder, the scheduler, the checkpoint, the epochs


def test_a_closed_stderr_ends_nothing(run_script: Run, job_environment: Environment) -> None:
    source = "import sys; sys.stderr.close()\n" + TRAIN + "print(api.epoch)"
    done = run_script(source, job_environment, patient=False, KUBEPROFILER_SERVER="127.0.0.1:1")
    assert (done.returncode, done.stdout) == (0, "5\n")


def test_a_job_without_grpcio_is_heard_and_stopped_over_http(
    run_script: Run, job_environment: Environment, web: Any
) -> None:
    source = "import sys; sys.modules['grpc'] = None\n" + TRAIN
    more = {"KUBEPROFILER_HTTP": web.address, "KUBEPROFILER_SERVER": "127.0.0.1:1"}
    web.stop_at = 2
    assert run_script(source, job_environment, **more).returncode == 85
    assert web.done() == 2
    web.stop_at = None
    done = run_script(source, job_environment, EPOCHS_DONE="2", **more)
    assert (done.returncode, done.stderr.count("no checkpoint was found")) == (0, 1)
    assert web.done() == 5
    trained = [(heads.get("X-Attempt"), heads.get("X-Trained")) for heads in web.headers[-4:-1]]
    assert trained == [("1", "2"), ("1", "3"), ("1", "3")], "what it saved holds 3 of 5 epochs"
    assert [path for _, path, _ in web.heard][-1].startswith("/signal_end/")

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.kubernetesdlprofile.conftest import Environment, Run, Start

BEGIN = """
import sys
from kubernetesdlprofile import kubeprofiler
api = kubeprofiler.KubeProfiler()
"""
TRAIN = (
    BEGIN
    + """
for epoch in range(api.EPOCHS_DONE, api.EPOCHS):
    api.start_epoch()
    for step in range(4):
        api.measure()
    api.end_epoch()
    print("epoch", api.epoch, flush=True)
"""
)


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for said in process.stdout:
        if said.strip() == line:
            return
    raise AssertionError(f"the script ended without saying {line!r}: {process.communicate()}")


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def warnings(done: subprocess.CompletedProcess[str]) -> list[str]:
    lines = done.stderr.splitlines()
    assert all(line.startswith("[KUBE_API_LIBRARY] ") for line in lines), done.stderr
    return lines


# --- a training that is left alone --------------------------------------------------------------


def test_every_epoch_is_asked_for_and_reported(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(TRAIN + "api.end()", job_environment)
    assert (done.returncode, warnings(done)) == (0, [])
    assert [method for method in recorder.methods() if method == "StartEpoch"] == ["StartEpoch"] * 5
    assert [message.epoch for message in recorder.of("StartEpoch")] == [0, 1, 2, 3, 4]
    assert recorder.epochs() == [1, 2, 3, 4, 5]
    assert recorder.methods()[-1] == "Finish"
    assert not recorder.of("Finish")[0].preempted
    assert {metadata["authorization"] for metadata in recorder.metadata} == {"Bearer a-token"}


def test_what_a_checkpoint_has_more_than_was_told_is_told_at_the_end(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    again = {**job_environment, "JOB_RESTARTED": "TRUE", "EPOCHS_DONE": "4"}
    done = run_script(BEGIN + "api.epoch = 5  # as its checkpoint says\napi.end()", again)
    assert (done.returncode, warnings(done)) == (0, [])
    assert recorder.methods() == ["EndEpoch", "Finish"]
    (told,) = recorder.of("EndEpoch")[0].profiles
    assert (told.epoch, told.epoch_seconds, told.step_seconds) == (5, 0.0, 0.0)


def test_a_profile_tells_what_was_measured_in_its_epoch(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    run_script(
        TRAIN,
        job_environment,
        KUBEPROFILER_ATTEMPT="3",
        NODE_RANK="1",
        KUBEPROFILER_PRETEND_MEMORY_MIB="4000",
    )
    for message in recorder.of("EndEpoch"):
        for profile in message.profiles:
            assert profile.job_id == job_environment["JOB_UUID"]
            assert (profile.attempt, profile.rank, profile.steps) == (3, 1, 4)
            assert 0 < 4 * profile.step_seconds <= profile.epoch_seconds
            assert profile.samples_per_second == pytest.approx(1000 / (4 * profile.step_seconds))
            assert profile.memory_mib == 4000


def test_an_epoch_without_a_step_is_an_epoch(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    run_script(BEGIN + "api.start_epoch(); api.end_epoch()", job_environment)
    ((profile,),) = (message.profiles for message in recorder.of("EndEpoch"))
    assert (profile.epoch, profile.steps, profile.step_seconds) == (1, 0, 0.0)
    assert profile.samples_per_second == 0.0


def test_the_old_attributes_have_their_values(
    run_script: Run, job_environment: Environment, tmp_path: Path
) -> None:
    done = run_script(
        TRAIN
        + """
names = '''JOBID PROFILE_EACH RANK NODE_LIST NUM_GPUS NUM_NODES RESTARTED BATCH_SIZE EPOCHS
EPOCHS_DONE TRAINING_SET_SIZE LOCAL_RANK root_dir ckpt_path epoch iterations iterationPerEpoch
maxIterations has_to_stop should_stop jmHostname dbHostname'''
print({name: getattr(api, name) for name in names.split()})
assert 0 < api.mean_iteration_duration
assert api.start_epoch_time <= api.last_time <= api.end_epoch_time
""",
        job_environment,
    )
    assert done.returncode == 0, done.stderr
    root_dir = tmp_path / "snapshots" / job_environment["JOB_UUID"]
    assert root_dir.is_dir()
    server = job_environment["KUBEPROFILER_SERVER"]
    expected = {
        "JOBID": job_environment["JOB_UUID"],
        "PROFILE_EACH": 3,
        "RANK": 0,
        "NODE_LIST": "westworld",
        "NUM_GPUS": 2,
        "NUM_NODES": 1,
        "RESTARTED": False,
        "BATCH_SIZE": 32,
        "EPOCHS": 5,
        "EPOCHS_DONE": 0,
        "TRAINING_SET_SIZE": 1000,
        "LOCAL_RANK": -1,
        "root_dir": str(root_dir),
        "ckpt_path": None,
        "epoch": 5,
        "iterations": 20,
        "iterationPerEpoch": 15,
        "maxIterations": 75,
        "has_to_stop": False,
        "should_stop": False,
        "jmHostname": server,
        "dbHostname": server,
    }
    assert done.stdout.splitlines()[-1] == str(expected)


def test_signs_of_life_are_sent_during_a_long_epoch(
    start_script: Start, job_environment: Environment, recorder: Any
) -> None:
    script = start_script(
        BEGIN + "api.start_epoch()\nwhile True: api.measure()",
        job_environment,
        KUBEPROFILER_HEARTBEAT_SECONDS="0.05",
    )
    first, second, *_ = recorder.wait_for("Report", 2)
    script.kill()
    assert first.profiles[0].steps < second.profiles[0].steps
    assert first.profiles[0].epoch == 0


def test_a_sign_of_life_can_be_asked_for(
    start_script: Start, job_environment: Environment, recorder: Any
) -> None:
    source = "api.start_epoch(); api.measure(); api.send_profiling(); sys.stdin.readline()"
    start_script(BEGIN + source, job_environment)
    (message,) = recorder.wait_for("Report")
    assert message.profiles[0].steps == 1


def test_hosts_given_by_the_script_are_used_before_the_environment(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    address = job_environment["KUBEPROFILER_SERVER"]
    for arguments in (f"'{address}', 'db'", f"db_hostname='{address}'"):
        source = TRAIN.replace("KubeProfiler()", f"KubeProfiler({arguments})")
        run_script(source, job_environment, KUBEPROFILER_SERVER="127.0.0.1:1")
    assert len(recorder.of("StartEpoch")) == 10


# --- stop ---------------------------------------------------------------------------------------


def test_a_stop_is_obeyed_before_the_first_step_and_after_all_reports(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 2
    done = run_script(TRAIN, job_environment)
    assert done.returncode == 85
    assert done.stdout.split() == ["epoch", "1", "epoch", "2"]
    assert recorder.methods() == ["StartEpoch", "EndEpoch"] * 2 + ["StartEpoch", "Finish"]
    assert recorder.epochs() == [1, 2]
    assert recorder.of("Finish")[0].preempted
    assert warnings(done) == [
        "[KUBE_API_LIBRARY] the scheduler stops this run after epoch 2 of 5: urgent waits"
    ]


def test_a_resumed_run_goes_on_counting(
    run_script: Run, job_environment: Environment, recorder: Any, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "snapshots" / job_environment["JOB_UUID"] / "last.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("weights")
    source = TRAIN + "print(api.RESTARTED, api.ckpt_path)"
    done = run_script(source, job_environment, JOB_RESTARTED="TRUE", EPOCHS_DONE="2")
    assert done.stdout.splitlines()[-1] == f"True {checkpoint}"
    assert recorder.epochs() == [3, 4, 5]
    assert [message.epoch for message in recorder.of("StartEpoch")] == [2, 3, 4]


def test_the_last_epoch_is_never_interrupted(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 4
    done = run_script(TRAIN, job_environment)
    assert (done.returncode, warnings(done)) == (0, [])
    assert recorder.epochs() == [1, 2, 3, 4, 5]


def test_the_exit_code_of_a_stopped_run_can_be_chosen(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 0
    assert run_script(TRAIN, job_environment, KUBEPROFILER_STOP_EXIT_CODE="0").returncode == 0
    assert recorder.of("Finish")[0].preempted


def test_a_script_may_look_and_leave_by_itself(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 1
    source = TRAIN.replace(
        "    for step", "    if api.should_stop: api.end(); sys.exit(7)\n    for step"
    ).replace("for epoch", "api.exit_on_stop = False\nfor epoch", 1)
    done = run_script(source, job_environment)
    assert done.returncode == 7
    assert recorder.methods() == ["StartEpoch", "EndEpoch", "StartEpoch", "Finish"]
    assert recorder.of("Finish")[0].preempted


def test_a_script_that_does_not_look_is_left_at_its_next_step(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 1
    source = TRAIN.replace("for epoch", "api.exit_on_stop = False\nfor epoch", 1)
    done = run_script(source, job_environment)
    assert done.returncode == 85
    assert done.stdout.split() == ["epoch", "1"]
    assert recorder.methods()[-1] == "Finish"


def test_another_thread_than_the_main_one_is_told_but_not_ended(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 0
    done = run_script(
        BEGIN
        + """
import threading
def train():
    api.start_epoch()
    api.measure()
    print("told" if api.should_stop else "not told")
thread = threading.Thread(target=train)
thread.start()
thread.join()
""",
        job_environment,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["told"])
    assert recorder.methods() == ["StartEpoch"]


def test_training_begins_while_the_answer_is_late_and_the_late_answer_is_obeyed(
    start_script: Start, job_environment: Environment, recorder: Any
) -> None:
    recorder.answering.clear()
    recorder.stop_at = 0
    source = "api.start_epoch()\nprint('training', flush=True)\nwhile True: api.measure()"
    script = start_script(BEGIN + source, job_environment, patient=False)
    read_until(script, "training")
    recorder.answering.set()
    assert script.wait() == 85
    assert recorder.of("Finish")[0].preempted


def test_an_answer_for_an_epoch_that_is_over_is_void(
    start_script: Start, job_environment: Environment, recorder: Any
) -> None:
    recorder.answering.clear()
    recorder.stop_at = 0
    source = "api.start_epoch(); api.end_epoch(); print('over', flush=True)\n"
    source += "sys.stdin.readline(); api.measure(); print(api.should_stop, flush=True)"
    script = start_script(BEGIN + source, job_environment, patient=False)
    read_until(script, "over")
    recorder.answering.set()
    recorder.wait_for("EndEpoch")  # which comes after the answer
    say(script, "go on")
    read_until(script, "False")
    assert script.wait() == 0


# --- trouble ------------------------------------------------------------------------------------


def test_a_scheduler_that_dies_and_returns_misses_no_epoch(
    start_script: Start, job_environment: Environment, recorder: Any, place: Any
) -> None:
    source = TRAIN.replace("    api.end_epoch()", "    sys.stdin.readline(); api.end_epoch()")
    script = start_script(source, job_environment)
    say(script, "")
    recorder.wait_for("EndEpoch")
    place.close()
    for epoch in (2, 3, 4):
        say(script, "")
        read_until(script, f"epoch {epoch}")
    place.open()
    recorder.wait_for_epoch(4)
    say(script, "")
    assert script.wait() == 0
    assert set(recorder.epochs()) == {1, 2, 3, 4, 5}  # some perhaps twice


def test_a_script_ends_without_any_answer(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.answering.clear()
    done = run_script(TRAIN + "api.end()", job_environment, patient=False, EPOCHS_TO_BE_DONE="1")
    assert done.returncode == 0
    (warning,) = warnings(done)
    assert "training continues" in warning
    (unsent,) = Path(job_environment["KUBEPROFILER_SNAPSHOTS"]).rglob(".kubeprofiler-*.json")
    assert [profile["epoch"] for profile in json.loads(unsent.read_text())] == [1]


def test_a_script_that_fails_reports_its_epochs_and_no_end(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(TRAIN + "1 / 0", job_environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert recorder.epochs() == [1, 2, 3, 4, 5]
    assert "Finish" not in recorder.methods()


def test_a_killed_script_reports_no_end(
    start_script: Start, job_environment: Environment, recorder: Any
) -> None:
    script = start_script(TRAIN + "sys.stdin.readline()", job_environment)
    read_until(script, "epoch 5")
    script.send_signal(signal.SIGTERM)
    assert script.wait() == -signal.SIGTERM
    assert "Finish" not in recorder.methods()


def test_a_wrong_token_is_told_and_the_training_ends_well(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    for method in ("StartEpoch", "EndEpoch", "Report", "Finish"):
        recorder.refuse[method] = grpc.StatusCode.UNAUTHENTICATED
    done = run_script(TRAIN + "api.end()", job_environment)
    assert done.returncode == 0
    assert sorted(warnings(done)) == [
        f"[KUBE_API_LIBRARY] the scheduler refuses {method} "
        "(UNAUTHENTICATED: as the test wants it); it will not be sent again"
        for method in ("EndEpoch", "Finish", "StartEpoch")
    ]


def test_bad_variables_are_named_and_the_rest_is_used(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(TRAIN, job_environment, BATCH_SIZE="0", NUM_GPUS="N/A")
    assert done.returncode == 0
    named = [line.split()[1].split("=")[0] for line in warnings(done)]
    assert sorted(named) == ["BATCH_SIZE", "NUM_GPUS"]
    assert recorder.epochs() == [1, 2, 3, 4, 5]


def test_without_grpcio_and_without_http_the_training_runs_as_outside_the_scheduler(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    source = "import sys; sys.modules['grpc'] = None\n" + TRAIN + "api.end()"
    done = run_script(source, job_environment, EPOCHS_DONE="3", JOB_RESTARTED="TRUE")
    assert (done.returncode, done.stdout.split()) == (0, ["epoch", "4", "epoch", "5"])
    assert len(warnings(done)) == 2
    assert "grpcio" in done.stderr
    assert "no checkpoint was found" in done.stderr
    assert recorder.heard == []


# --- outside the scheduler ----------------------------------------------------------------------


def test_outside_the_scheduler_there_is_one_warning_and_no_network(
    run_script: Run, bare_environment: Environment
) -> None:
    source = TRAIN + "api.end(); print(api.ckpt_path, api.RESTARTED, api.NUM_GPUS, api.root_dir)"
    source += "; print('grpc' in sys.modules)"
    done = run_script(source, bare_environment)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "epoch 1"
    *_, attributes, networked = done.stdout.splitlines()
    assert attributes.startswith("None False 1 ")
    assert networked == "False"
    (warning,) = warnings(done)
    assert warning.startswith("[KUBE_API_LIBRARY] not running under the scheduler")
    root_dir = Path(attributes.split()[-1])
    assert root_dir.is_dir()
    root_dir.rmdir()


def test_outside_the_scheduler_the_environment_still_counts(
    run_script: Run, bare_environment: Environment, tmp_path: Path
) -> None:
    more = {"EPOCHS_TO_BE_DONE": "3", "KUBEPROFILER_SNAPSHOTS": str(tmp_path)}
    done = run_script(TRAIN + "print(api.root_dir)", {**bare_environment, **more})
    assert done.stdout.splitlines() == ["epoch 1", "epoch 2", "epoch 3", f"{tmp_path}/standalone"]


# --- several processes, copies ------------------------------------------------------------------


def test_of_two_ranks_both_are_told_to_stop_and_one_speaks(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 2
    for local_rank in ("0", "1"):
        done = run_script(TRAIN, job_environment, LOCAL_RANK=local_rank, RANK=local_rank)
        assert done.returncode == 85
    asked = [(message.rank, message.local_rank) for message in recorder.of("StartEpoch")]
    assert asked == [(0, 0)] * 3 + [(1, 1)] * 3
    assert recorder.epochs() == [1, 2]
    assert [message.rank for message in recorder.of("Finish")] == [0]


def test_copies_are_the_one_profiler_of_their_process(
    run_script: Run, job_environment: Environment
) -> None:
    done = run_script(
        TRAIN
        + """
import copy, pickle
class Model: pass
model = Model()
model.profiler = api
assert copy.deepcopy(model).profiler is api
assert copy.copy(api) is api
assert pickle.loads(pickle.dumps(model)).profiler is api
assert kubeprofiler.KubeProfiler() is api
assert api.epoch == 5 and api.iterations == 20
""",
        job_environment,
    )
    assert done.returncode == 0, done.stderr


def test_a_profiler_unpickled_by_a_later_attempt_speaks_to_the_server_of_that_attempt(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    source = BEGIN + "import pickle; print(pickle.dumps(api).hex())"
    old = run_script(source, job_environment, KUBEPROFILER_SERVER="127.0.0.1:1")
    source = f"""
import pickle
from kubernetesdlprofile import kubeprofiler
api = pickle.loads(bytes.fromhex({old.stdout.strip()!r}))
assert api is kubeprofiler.KubeProfiler()
api.start_epoch()
"""
    new = run_script(source, job_environment)
    assert new.returncode == 0, new.stderr
    assert len(recorder.of("StartEpoch")) == 1


def test_a_forked_child_speaks_for_itself(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(
        BEGIN
        + """
import os
child = os.fork()
api.start_epoch()
api.measure()
if child == 0:
    api.epoch = 3
    api.end_epoch()
    sys.exit()
_, status = os.waitpid(child, 0)
api.end_epoch()
sys.exit(os.WEXITSTATUS(status))
""",
        job_environment,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(recorder.epochs()) == [1, 4]


def test_a_forked_child_that_says_nothing_ends_at_once(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(
        TRAIN
        + """
import os
child = os.fork()
if child == 0:
    sys.exit(3)
_, status = os.waitpid(child, 0)
sys.exit(os.WEXITSTATUS(status))
""",
        job_environment,
    )
    assert done.returncode == 3, done.stderr
    assert recorder.epochs() == [1, 2, 3, 4, 5]


def test_the_number_of_threads_does_not_grow(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.answering.clear()  # the worst case: every message waits
    source = BEGIN + "import threading\napi.start_epoch()\nbefore = threading.active_count()\n"
    source += "for step in range(200): api.measure(); api.send_profiling()\n"
    source += "for epoch in range(200): api.end_epoch()\n"
    source += "print(threading.active_count() - before)"
    done = run_script(source, job_environment, patient=False)
    assert done.stdout.split() == ["0"]


def test_a_worker_of_multiprocessing_delivers_before_it_ends(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 3
    train = TRAIN[len(BEGIN) :].replace("\n", "\n    ")
    done = run_script(
        BEGIN
        + f"""
import multiprocessing
def train():
    {train}
worker = multiprocessing.get_context("fork").Process(target=train)
worker.start()
worker.join()
sys.exit(worker.exitcode)
""",
        job_environment,
    )
    assert done.returncode == 85, done.stderr
    assert recorder.epochs() == [1, 2, 3]
    assert recorder.methods()[-1] == "Finish"


def test_a_snapshots_folder_that_cannot_be_used_is_no_end(
    run_script: Run, job_environment: Environment, tmp_path: Path, recorder: Any
) -> None:
    (tmp_path / "snapshots").touch()  # a file
    done = run_script(TRAIN, job_environment, TMPDIR=str(tmp_path))
    assert done.returncode == 0
    (warning,) = warnings(done)
    assert "will lose the work" in warning
    assert recorder.epochs() == [1, 2, 3, 4, 5]

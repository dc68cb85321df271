"""The defects of the first library, X01 to X34 of its contract: none of them is left."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubernetesdlprofile import (
    __version__,
    checkpoints,
    courier,
    folders,
    http,
    kubeprofiler,
    memory,
    settings,
    wire,
)
from tests.kubernetesdlprofile.conftest import Environment, Run, Start

BEGIN = """
import os, sys, threading, time
from kubernetesdlprofile import kubeprofiler
api = kubeprofiler.KubeProfiler()
"""
TRAIN = (
    BEGIN
    + """
for epoch in api.epochs():
    for step in range(4):
        api.measure()
"""
)


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert all(line.startswith("[KUBE_API_LIBRARY] ") for line in done.stderr.splitlines())
    return done.stderr.splitlines()


def test_x01_outside_the_scheduler_everything_has_a_sane_value(
    run_script: Run, bare_environment: Environment, tmp_path: Path
) -> None:
    source = TRAIN.replace("KubeProfiler()", "KubeProfiler(epochs=2)")
    source += (
        "print(api.epoch, api.EPOCHS_DONE, api.NUM_GPUS, api.RESTARTED, 'grpc' in sys.modules)"
    )
    done = run_script(source, bare_environment, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "2 0 1 False False\n")
    assert len(lines(done)) == 1


def test_x02_a_bad_variable_is_named_and_the_others_are_read(
    run_script: Run, job_environment: Environment
) -> None:
    source = BEGIN + "print(api.BATCH_SIZE, api.TRAINING_SET_SIZE, api.EPOCHS)"
    done = run_script(source, job_environment, BATCH_SIZE="N/A", NUM_NODES="-1")
    assert done.stdout == "1 1000 5\n"
    assert sorted(line.split()[1].split("=")[0] for line in lines(done)) == [
        "BATCH_SIZE",
        "NUM_NODES",
    ]


@pytest.mark.parametrize(
    ("text", "restarted"),
    [(None, False), ("False", False), ("0", False), ("TRUE", True), ("yes", True), ("1", True)],
)
def test_x03_restarted_is_what_was_said_in_any_spelling(text: str | None, restarted: bool) -> None:
    environment = {} if text is None else {"JOB_RESTARTED": text}
    assert settings.Settings(environment).boolean("JOB_RESTARTED") is restarted


def test_x04_a_folder_for_snapshots_is_made_by_ranks_that_race(tmp_path: Path) -> None:
    for _ in range(2):
        made = folders.folder(str(tmp_path / "absent" / "snapshots"), "job")
    assert Path(made).is_dir()


def test_x05_the_server_is_named_by_the_environment_and_before_it_by_the_script() -> None:
    injected = {"KUBEPROFILER_SERVER": "injected:81"}
    assert settings.Settings(injected).server == "injected:81"
    assert settings.Settings(injected, server="given:82").server == "given:82"
    assert settings.Settings({}).server == ""


def test_x06_a_server_in_trouble_is_asked_again_and_a_refusal_is_told(
    run_script: Run, job_environment: Environment, web: Any
) -> None:
    assert courier.CALL_SECONDS <= 2.0
    source = "import sys; sys.modules['grpc'] = None\n" + BEGIN
    source += "api.start_epoch(); api.end_epoch(); api._courier.flush(0.1)\n"
    more = {"KUBEPROFILER_HTTP": web.address}
    web.status = 500
    done = run_script(source + "os._exit(0)", job_environment, **more)
    assert "HTTP 500" in done.stderr
    assert len(web.bodies("/profiling/")) >= 1
    web.status = 403
    done = run_script(source, job_environment, **more)
    assert "HTTP 403" in done.stderr
    assert {headers["Authorization"] for headers in web.headers} == {"Bearer a-token"}


def test_x07_a_memory_probe_that_fails_ends_neither_the_epoch_nor_the_reports(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    broken = (
        "class torch:\n    class cuda:\n        def is_initialized(): raise OSError('driver')\n"
    )
    source = "import sys\n" + broken + "sys.modules['torch'] = torch\n" + TRAIN
    done = run_script(source, job_environment, PATH="", NVIDIA_SMI="none")
    assert (done.returncode, done.stderr) == (0, "")
    assert recorder.epochs() == [1, 2, 3, 4, 5]


def test_x08_memory_is_the_frameworks_own_count_and_never_looked_up_by_process() -> None:
    source = Path(memory.__file__).read_text()
    assert "getpid" not in source
    assert "nvidia-smi" not in source
    assert memory.probe() == []  # not known, rather than 0


def test_x09_each_gpu_is_told_and_the_fullest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_torch", lambda: [100 << 20, 250 << 20])
    assert memory.probe() == [100 + memory.CONTEXT_MIB, 250 + memory.CONTEXT_MIB]
    assert memory.Sampler(0)() == 250 + memory.CONTEXT_MIB


@pytest.mark.parametrize("text", ["N/A", "Insufficient Permissions", "250 MiB", "-1", ""])
def test_x10_a_number_that_is_none_is_not_known(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEPROFILER_PRETEND_MEMORY_MIB", text)
    assert memory.probe() == []


def test_x11_memory_is_looked_at_every_ten_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    now = [0.0]
    monkeypatch.setattr(memory, "monotonic", lambda: now[0])

    def probe(reserved_mib: int) -> list[int]:
        looks.append(reserved_mib)
        return [7]

    monkeypatch.setattr(memory, "probe", probe)
    sampler = memory.Sampler(4000)
    for now[0] in (0.0, 5.0, 9.9, 10.0, 19.9):
        assert sampler() == 7
    assert looks == [4000, 4000]


def test_x12_there_is_one_thread_however_slow_the_server_is(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.answering.clear()
    source = BEGIN + "for n in range(200): api.measure(); api.send_profiling(); api.end_epoch()\n"
    source += "print(sum(t.name == 'kubeprofiler' for t in threading.enumerate()))"
    assert run_script(source, job_environment, patient=False).stdout == "1\n"


def test_x13_steps_are_counted_by_the_caller_alone(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    more = {"KUBEPROFILER_HEARTBEAT_SECONDS": "0.001", "EPOCHS_TO_BE_DONE": "3"}
    source = TRAIN.replace("range(4)", "range(50_000)") + "print(api.iterations)"
    assert run_script(source, job_environment, **more).stdout == "150000\n"
    reports = [p for message in recorder.of("Report") for p in message.profiles]
    assert all(p.step_seconds >= 0 and p.epoch_seconds >= 0 for p in reports)
    assert {p.steps for message in recorder.of("EndEpoch") for p in message.profiles} == {50_000}


def test_x14_a_script_does_not_linger_for_a_server_that_hangs(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.answering.clear()
    source = BEGIN + "api.start_epoch(); api.end_epoch(); print(time.monotonic(), flush=True)"
    done = run_script(source, job_environment, patient=False)
    # Beside what the interpreter itself needs on a busy machine.
    assert time.monotonic() - float(done.stdout) < courier.EXIT_SECONDS + 8
    assert courier.EXIT_SECONDS <= 2.0


def test_x15_what_is_between_the_epochs_is_in_no_step(
    run_script: Run, bare_environment: Environment, tmp_path: Path
) -> None:
    source = """
kubeprofiler.perf_counter = lambda: clock
clock = 0.0
def step(seconds):
    global clock
    clock += seconds
    api.measure()
for epoch in range(2):
    clock += 1000  # checkpoint, validation
    api.start_epoch()
    step(60)  # warms up
    for n in range(4): step(0.5)
    print(api.mean_iteration_duration)
    clock += 1000
    api.end_epoch()
print(api.mean_iteration_duration)
"""
    done = run_script(BEGIN + source, bare_environment, TMPDIR=str(tmp_path))
    assert done.stdout.split() == ["0.5", "0.5", "0.5"]


def test_x16_the_mean_is_of_this_epoch(
    run_script: Run, bare_environment: Environment, tmp_path: Path
) -> None:
    source = """
kubeprofiler.perf_counter = lambda: clock
clock = 0.0
for seconds in (1, 3):
    api.start_epoch()
    for n in range(3):
        clock += seconds
        api.measure()
    print(api.mean_iteration_duration)
    api.end_epoch()
"""
    done = run_script(BEGIN + source, bare_environment, TMPDIR=str(tmp_path))
    assert done.stdout.split() == ["1.0", "3.0"]


def test_x17_steps_are_measured_and_the_promise_is_an_attribute(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    done = run_script(TRAIN + "print(api.iterationPerEpoch)", job_environment)
    assert done.stdout == "15\n"  # 1000 / (32 * 2), rounded down, as it always was
    assert {p.steps for message in recorder.of("EndEpoch") for p in message.profiles} == {4}


def test_x18_nothing_is_divided_by_zero(run_script: Run, job_environment: Environment) -> None:
    zeros = dict.fromkeys(("BATCH_SIZE", "NUM_GPUS", "HEARTBEAT_FREQ"), "0")
    done = run_script(TRAIN + "print(api.maxIterations)", job_environment, **zeros)
    assert (done.returncode, done.stdout) == (0, "5000\n")


def test_x19_ranks_agree_on_the_same_epoch(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 3
    for rank in ("0", "1"):
        assert run_script(TRAIN, job_environment, RANK=rank, LOCAL_RANK=rank).returncode == 85
    asked = [(message.rank, message.epoch) for message in recorder.of("StartEpoch")]
    assert asked == [(rank, epoch) for rank in (0, 1) for epoch in range(4)]
    # And where one of them had no answer in time:
    source = BEGIN + "api.start_epoch(agree=lambda stop: True)"
    recorder.stop_at = None
    assert run_script(source, job_environment).returncode == 85


def test_x20_no_step_is_wasted_and_an_empty_loader_stops_too(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 1
    source = TRAIN.replace("range(4)", "()").replace("for epoch", "print(1)\nfor epoch")
    done = run_script(source, job_environment)
    assert (done.returncode, recorder.epochs()) == (85, [1])


def test_x21_a_preempted_run_says_so_and_has_an_exit_code_of_its_own(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    recorder.stop_at = 1
    assert run_script(TRAIN, job_environment).returncode == 85
    assert run_script(TRAIN, job_environment, KUBEPROFILER_STOP_EXIT_CODE="0").returncode == 0
    assert [message.preempted for message in recorder.of("Finish")] == [True, True]


def test_x22_within_an_epoch_a_checkpoint_is_asked_for() -> None:
    told: list[tuple[int, str]] = []
    profile = wire.Profile("job", 1, 0, 1, 0.1, 1.0, 1.0, 0, 0.0, 1)

    class Stopping:
        def call(self, method: str, message: Any, timeout_seconds: float) -> tuple[bool, str]:
            return method == "Report", ""

        def close(self) -> None:
            """Nothing is open."""

    one = courier.Courier(Stopping(), 0.001, lambda: profile, lambda *stop: told.append(stop))
    one.post_epoch(profile)
    while not told:
        one.flush(0.01)
    one.close()
    assert told[0] == (-1, "")
    assert kubeprofiler.KubeProfiler.checkpoint_requested is False


@pytest.mark.parametrize(("gpus", "told"), [("1", "True"), ("2", "False")])
def test_x22_who_trains_alone_is_told_to_leave_within_an_epoch(
    run_script: Run, job_environment: Environment, recorder: Any, gpus: str, told: str
) -> None:
    recorder.asked_to_leave = True
    source = BEGIN + "api.start_epoch()\n"
    source += "while not api.checkpoint_requested: api.measure()\n"
    source += "print(api.should_stop, api.has_to_stop); api.epoch = api.EPOCHS - 1\n"
    source += "print(api.should_stop); api.epoch = 0; api.end()"
    more = {"NUM_GPUS": gpus, "KUBEPROFILER_HEARTBEAT_SECONDS": "0.01"}
    done = run_script(source, job_environment, **more)
    assert done.stdout == f"{told} False\nFalse\n"  # the last epoch is never interrupted
    assert recorder.of("Finish")[0].preempted is (told == "True")


def test_x23_training_waits_a_second_for_an_answer_and_no_longer(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    assert kubeprofiler.ANSWER_SECONDS <= 1.0
    recorder.answering.clear()
    source = BEGIN + "began = time.monotonic(); api.start_epoch()\n"
    source += "print(time.monotonic() - began, flush=True); os._exit(0)"
    done = run_script(source, job_environment, patient=False)
    assert float(done.stdout) < kubeprofiler.ANSWER_SECONDS + 3  # on a busy machine


def test_x24_an_epoch_is_sent_again_until_it_is_acknowledged(
    start_script: Start, job_environment: Environment, recorder: Any
) -> None:
    recorder.refuse["EndEpoch"] = grpc.StatusCode.UNAVAILABLE
    start_script(
        BEGIN + "api.start_epoch(); api.end_epoch(); sys.stdin.readline()", job_environment
    )
    recorder.wait_for("EndEpoch", 2)
    recorder.refuse.clear()
    recorder.wait_for("EndEpoch", 3)
    assert set(recorder.epochs()) == {1}


@pytest.mark.parametrize("how", ["api.end()", "", "with api: pass"])
def test_x25_a_complete_training_is_told(
    run_script: Run, job_environment: Environment, recorder: Any, how: str
) -> None:
    assert run_script(TRAIN + how, job_environment).returncode == 0
    assert [message.preempted for message in recorder.of("Finish")] == [False]


def test_x26_the_newest_complete_checkpoint_of_all_versions_is_taken(tmp_path: Path) -> None:
    versions = tmp_path / "lightning_logs"
    for number, names in {0: ["epoch=9-step=9.ckpt"], 1: ["epoch=10-step=10.ckpt"], 2: []}.items():
        (versions / f"version_{number}").mkdir(parents=True)
        for name in names:
            (versions / f"version_{number}" / name).write_text("weights")
    (versions / "version_1" / "epoch=11-step=11.ckpt").write_bytes(b"PK, cut short")
    (versions / "somebody_elses").mkdir()
    found = checkpoints.newest(str(tmp_path))
    assert found == str(versions / "version_1" / "epoch=10-step=10.ckpt")


@pytest.mark.parametrize("name", ["tf_ckpt", "tf_ckpts"])
def test_x27_tensorflows_folder_is_told_if_it_exists(tmp_path: Path, name: str) -> None:
    assert checkpoints.at_start(str(tmp_path)) is None
    (tmp_path / name).mkdir()
    (tmp_path / name / "checkpoint").touch()
    assert checkpoints.at_start(str(tmp_path)) == str(tmp_path / name)


@pytest.mark.parametrize("restarted", ["TRUE", "FALSE"])
def test_x28_the_path_of_the_checkpoint_is_always_defined(
    run_script: Run, job_environment: Environment, restarted: str
) -> None:
    source = BEGIN + "print(api.ckpt_path, api.checkpoint_path())"
    assert run_script(source, job_environment, JOB_RESTARTED=restarted).stdout == "None None\n"


def test_x29_a_model_that_holds_the_profiler_is_copied_and_pickled(
    run_script: Run, job_environment: Environment
) -> None:
    source = BEGIN + "import copy, pickle\napi.start_epoch()\n"
    source += "print(copy.deepcopy([api])[0] is api, pickle.loads(pickle.dumps(api)) is api)"
    assert run_script(source, job_environment).stdout == "True True\n"


def test_x30_it_needs_no_other_package_and_says_its_version(web: Any) -> None:
    project = Path(kubeprofiler.__file__).parent.parent / "pyproject.toml"
    assert "\ndependencies = []\n" in project.read_text()
    question = wire.StartEpoch("job", 1, 0, 0, 0)
    http.HttpTransport(web.address, "").call("StartEpoch", question, 30.0)
    assert web.headers[0]["User-Agent"] == f"kubernetesdlprofile/{__version__}"


@pytest.mark.parametrize(
    "job_id", ["/etc", "../other", "a b", "a\nb", "a" * 129, "a/b", "..", "a%2f"]
)
def test_x31_a_job_id_stays_within_its_folder_and_its_path(job_id: str) -> None:
    given = settings.Settings({"JOB_UUID": job_id})
    assert given.job_id == ""
    assert len(given.problems) == 1


def test_x32_every_message_carries_the_jobs_token(
    run_script: Run, job_environment: Environment, recorder: Any
) -> None:
    run_script(TRAIN, job_environment, KUBEPROFILER_HEARTBEAT_SECONDS="0.001")
    assert {told.get("authorization") for told in recorder.metadata} == {"Bearer a-token"}


def test_x33_the_share_of_memory_is_kept_where_that_is_wanted(
    run_script: Run, job_environment: Environment
) -> None:
    fake = """
import sys, types
cuda = types.SimpleNamespace(
    is_initialized=lambda: True, device_count=lambda: 2,
    get_device_properties=lambda gpu: types.SimpleNamespace(total_memory=16000 << 20),
    set_per_process_memory_fraction=lambda fraction, gpu: print(fraction, gpu),
    max_memory_reserved=lambda gpu: 0)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
"""
    reserved = {"RESERVED_MEM": str(4000 + memory.CONTEXT_MIB)}
    assert run_script(fake + BEGIN, job_environment, **reserved).stdout == ""
    done = run_script(fake + BEGIN, job_environment, KUBEPROFILER_ENFORCE_MEM="1", **reserved)
    assert done.stdout == "0.25 0\n0.25 1\n"


def test_x34_of_several_ranks_of_a_node_one_posts_and_says_who_it_is(
    run_script: Run, job_environment: Environment, web: Any
) -> None:
    source = "import sys; sys.modules['grpc'] = None\n" + TRAIN
    for rank in ("0", "1"):
        more = {"LOCAL_RANK": rank, "KUBEPROFILER_HTTP": web.address, "KUBEPROFILER_ATTEMPT": "2"}
        assert run_script(source, job_environment, **more).returncode == 0
    told = web.bodies("/profiling/")
    assert {(body["attempt"], body["localrank"]) for body in told} == {(2, 0)}
    assert [body["epoch"] for body in told if "epochDur" in body] == [1, 2, 3, 4, 5]


def test_every_defect_has_its_test() -> None:
    source = Path(__file__).read_text()
    assert [n for n in range(1, 35) if f"\ndef test_x{n:02}_" not in source] == []

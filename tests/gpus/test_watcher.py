"""Simulated GPUs, and an agent on a machine with our own NVML (tests/nvml)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scheduler.core.errors import ConfigError
from scheduler.core.model import Gpu
from scheduler.gpus.usage import LIBRARY, WATCHDOG, GpuReport, Process
from scheduler.gpus.watcher import GpuWatcher, among_all_pids, named_gpus, parse_gpus, pod_of
from tests.nvml.machine import Machine
from tests.support import eventually


def test_simulated_gpus_are_numbered_and_reserve_a_share() -> None:
    assert parse_gpus("2x16384,1x81920") == (
        Gpu("gpu0", 0, "pretended", 16384, 512),
        Gpu("gpu1", 1, "pretended", 16384, 512),
        Gpu("gpu2", 2, "pretended", 81920, 2560),
    )
    assert parse_gpus(" 4x16384 ")[3].capacity_mib == 15872
    assert parse_gpus("0") == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "4", "x", "4x", "x16384", "4*16384", "4x16384,", ",", "0x16384", "4x0", "-1x16384"),
        *("4x-1", "4x16384MiB", "4x1e4", "4x1.5", "\u0664x\u0661", "4x16384\n,", "9" * 5000 + "x1"),
    ],
)
def test_an_invalid_list_of_gpus_is_named_with_the_right_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"e\.g\. 4x16384, or 0 for none") as refusal:
        parse_gpus(text)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200
    assert repr(text[:20])[:-1] in str(refusal.value)


def test_a_gpu_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match="a GPU of 200 MiB is too small"):
        parse_gpus("1x16384,1x200")


def test_a_list_of_this_machines_gpus_names_them_by_index_or_uuid() -> None:
    assert named_gpus("nvml:0, GPU-8a4f") == ("0", "GPU-8a4f")
    assert named_gpus("4x16384") == named_gpus("") == ()
    for text in ("nvml:", "nvml:0,,1", "nvml: "):
        with pytest.raises(ConfigError, match=r"names no GPU, as nvml:0,2 does"):
            named_gpus(text)


# --- the agent ----------------------------------------------------------------------------------


@contextmanager
def watching(every_seconds: float = 0.02) -> Iterator[tuple[GpuWatcher, list[GpuReport]]]:
    told: list[GpuReport] = []
    agent = GpuWatcher("n1", time.time, every_seconds)
    agent.start(told.append)
    try:
        yield agent, told
    finally:
        agent.stop()


@contextmanager
def somebody() -> Iterator[int]:
    """A process that waits to be ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_a_machine_without_a_driver_has_no_gpus(nvml: Machine) -> None:
    nvml.unload()
    report = GpuWatcher("n1", lambda: 7.0).report
    assert report == GpuReport("n1", 7.0, (), LIBRARY)


def test_a_process_is_told_with_its_name_and_memory(nvml: Machine) -> None:
    nvml.gpu("GPU-a")
    with somebody() as pid:
        nvml.process(0, pid, 3000)
        nvml.process(0, 999_999_999, 500)
        report = GpuWatcher("n1", time.time).report
    (reading,) = report.cards
    seen, ghost = reading.processes
    assert (seen.pid, seen.memory_mib, seen.pod) == (pid, 3000, "")
    assert seen.name.startswith("python")
    assert ghost == Process(999_999_999, 500)
    assert report.keeps == WATCHDOG


def test_an_agent_that_sees_no_process_limits_no_run(nvml: Machine) -> None:
    nvml.gpu("GPU-a")
    nvml.process(0, 999_999_999, 500)  # a process that this container does not see
    assert GpuWatcher("n1", time.time).report.keeps == LIBRARY


APART = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
KEEPS = """
import time
from scheduler.gpus.watcher import GpuWatcher
print(GpuWatcher('n1', time.time).report.keeps)
"""


@pytest.mark.parametrize("apart", [False, True])
def test_on_unused_gpus_an_agent_in_its_own_pid_namespace_is_blind(
    nvml: Machine, apart: bool
) -> None:
    nvml.gpu("GPU-a")
    if apart and subprocess.run([*APART, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not allow separate pid namespaces")
    before = (*APART,) if apart else ()
    told = subprocess.run([*before, sys.executable, "-c", KEEPS], capture_output=True, text=True)
    assert told.stdout.strip() == (LIBRARY if apart or not among_all_pids() else WATCHDOG)


def test_what_changes_is_told_and_what_stays_is_not(nvml: Machine) -> None:
    nvml.gpu("GPU-a")
    with watching() as (agent, told):
        first = agent.report
        eventually(lambda: agent.report.at > first.at)
        assert told == []
        nvml.process(0, os.getpid(), 3000)
        # The machine may change between the calls of one reading, so half of it may be told first.
        eventually(lambda: told and told[-1].cards[0].used_mib == 3000)


def test_an_error_of_a_gpu_is_reported_before_the_next_observation(nvml: Machine) -> None:
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-b")
    with watching(every_seconds=3600.0) as (agent, told):
        eventually(lambda: _xid(nvml, 48) or told)  # what was before it listened it is not told
        assert [gpu.fault[:6] for gpu in agent.gpus] == ["", "XID 48"]
        assert (agent.gpus[1].leave, agent.gpus[1].lost) == (True, False)


def _xid(nvml: Machine, number: int) -> bool:
    nvml.xid(1, number)
    return False


def test_while_the_driver_hangs_no_other_thread_waits_for_it(
    nvml: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("watcher.LEAVE_SECONDS", "nvml.CLOSE_SECONDS"):
        monkeypatch.setattr(f"scheduler.gpus.{patience}", 0.1)  # a second in a daemon
    nvml.gpu("GPU-a")
    with watching() as (agent, _):
        before = agent.report
        eventually(lambda: agent.report.at > before.at)
        nvml.hang()
        agent.look_again()
        assert agent.gpus == (Gpu("GPU-a", 0, "t4", 16384, 512),)
    nvml.hang(False)  # it was stopped all the same


def test_a_driver_that_hangs_for_long_is_a_fault_of_its_gpus(nvml: Machine) -> None:
    nvml.gpu("GPU-a")
    now = 1000.0
    agent = GpuWatcher("n1", lambda: now)
    now += 60.0
    assert [gpu.fault for gpu in agent.gpus] == [""]
    now += 1.0
    assert [gpu.fault for gpu in agent.gpus] == ["its driver does not answer"]


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (
            "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            "kubelet-kubepods-burstable-pod0d1f2c3a_1111_4222_8333_444455556666.slice/"
            "cri-containerd-9f.scope\n",
            "0d1f2c3a-1111-4222-8333-444455556666",
        ),
        (
            "0::/../../pod0d1f2c3a-1111-4222-8333-444455556666/9f\n",
            "0d1f2c3a-1111-4222-8333-444455556666",
        ),
        (
            "12:memory:/kubepods/besteffort/pod0d1f2c3a-1111-4222-8333-444455556666/9f\n0::/\n",
            "0d1f2c3a-1111-4222-8333-444455556666",
        ),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        ("", ""),
    ],
)
def test_a_process_is_in_the_pod_that_its_cgroup_names(cgroup: str, uid: str) -> None:
    assert pod_of(cgroup) == uid


def test_an_agent_of_some_gpus_sees_no_others(nvml: Machine) -> None:
    """As in an allocation of Slurm's, of which the other GPUs are no part."""
    for number in range(4):
        nvml.gpu(f"GPU-{number}")
    nvml.process(0, os.getpid(), 100)
    agent = GpuWatcher("n1", time.time, only=("1", "GPU-3"))
    assert [gpu.uuid for gpu in agent.gpus] == ["GPU-1", "GPU-3"]
    assert [reading.processes for reading in agent.look().cards] == [(), ()]
    with pytest.raises(ConfigError) as refusal:
        GpuWatcher("n1", time.time, only=("1", "7"))
    assert str(refusal.value) == "gpus: nvml:7: NVML shows no such GPU on this machine"

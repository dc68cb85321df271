"""GPUs as a driver reports them: an old one, a lost one, one with an error, none at all.

NVML is a library of our own (tests/nvml), so that what is tested is the way from there to here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from scheduler.core.model import Gpu
from scheduler.gpus.nvml import Nvml, gpu_type
from scheduler.gpus.usage import GpuReading, Process
from tests.nvml.machine import Machine
from tests.support import eventually


@pytest.fixture
def driver(nvml: Machine) -> Iterator[Nvml]:
    """What the machine `nvml` tells, when it is asked."""
    made = Nvml()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 3090", "geforce-rtx-3090"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_type_is_one_word_without_the_maker(name: str, type_: str) -> None:
    assert gpu_type(name) == type_


def test_gpus_are_reported_with_their_type_and_memory(nvml: Machine, driver: Nvml) -> None:
    nvml.gpu("GPU-a", 16384, 512, name="Tesla T4")
    nvml.gpu("GPU-b", 81920, 600, busy=87, name="NVIDIA A100-SXM4-80GB")
    nvml.process(1, 11, 3000)
    nvml.process(1, 12, 1000)
    nvml.used(1, 200)
    assert driver.read() == (
        GpuReading(Gpu("GPU-a", 0, "t4", 16384, 512)),
        GpuReading(
            Gpu("GPU-b", 1, "a100-sxm4-80gb", 81920, 600),
            used_mib=4200,
            busy=0.87,
            processes=(Process(11, 3000), Process(12, 1000)),
        ),
    )


def test_the_newest_sample_says_how_busy_a_process_is(nvml: Machine, driver: Nvml) -> None:
    nvml.gpu("GPU-a", busy=75)
    nvml.process(0, 11, 3000, busy=40)
    nvml.process(0, 12, 1000, busy=32)
    nvml.process(0, 13, 100)
    (reading,) = driver.read()
    busy = {process.pid: process.busy for process in reading.processes}
    assert busy == {11: 0.4, 12: 0.32, 13: 0.0}
    assert abs(sum(busy.values()) - reading.busy) < 0.05


def test_a_driver_older_than_510_reserves_what_we_do_not_hear_of(
    nvml: Machine, driver: Nvml
) -> None:
    nvml.driver = "470.82.01"
    nvml.gpu("GPU-a", 16384, 512)
    nvml.process(0, 11, 3000)
    assert driver.read() == (
        GpuReading(Gpu("GPU-a", 0, "t4", 16384, 0), 3512, processes=(Process(11, 3000),)),
    )


def test_the_memory_of_a_process_may_be_unknown(nvml: Machine, driver: Nvml) -> None:
    nvml.gpu("GPU-a")
    nvml.process(0, 11, -1)
    assert driver.read()[0].processes == (Process(11, 0),)


def test_a_process_that_has_ended_uses_nothing(nvml: Machine, driver: Nvml) -> None:
    nvml.gpu("GPU-a", reserved=0)
    nvml.mortal()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        nvml.process(0, program.pid, 3000)
        assert driver.read()[0].processes == (Process(program.pid, 3000),)
        program.kill()
        eventually(lambda: driver.read()[0].processes == ())
    assert driver.read()[0].used_mib == 0


def test_forty_processes_on_eight_gpus_are_each_on_the_right_gpu(
    nvml: Machine, driver: Nvml
) -> None:
    for gpu in range(8):
        nvml.gpu(f"GPU-{gpu}")
        for number in range(5):
            nvml.process(gpu, 100 * gpu + number + 1, 1000 + number)
    readings = driver.read()
    assert [reading.used_mib for reading in readings] == [5010] * 8
    assert readings[7].processes == tuple(Process(701 + n, 1000 + n) for n in range(5))


def test_a_gpu_that_is_lost_before_the_start_is_not_reported(nvml: Machine, driver: Nvml) -> None:
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-b")
    nvml.lose(0)
    assert [reading.gpu.uuid for reading in driver.read()] == ["GPU-b"]


def test_a_gpu_that_gets_lost_is_reported_as_lost_and_the_others_are_well(
    nvml: Machine, driver: Nvml
) -> None:
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-b")
    driver.read()
    nvml.lose(0)
    lost = Gpu("GPU-a", 0, "t4", 16384, 512, fault="it no longer answers", lost=True)
    assert driver.read() == (GpuReading(lost), GpuReading(Gpu("GPU-b", 1, "t4", 16384, 512)))


@pytest.mark.parametrize(
    ("xids", "fault", "leave", "lost"),
    [
        ([31], "", False, False),
        ([63], "", False, False),
        ([48], "XID 48: a double bit error in its memory; it needs a reset", True, False),
        ([109], "XID 109: switching between programs timed out; it needs a reset", True, False),
        ([74], "XID 74: an error of NVLink", True, False),
        ([999], "XID 999: what NVIDIA says about it is to be looked up", True, False),
        ([48, 94], "XID 48: a double bit error in its memory; it needs a reset", True, False),
        ([74, 48], "XID 48: a double bit error in its memory; it needs a reset", True, False),
        ([48, 62], "XID 48: a double bit error in its memory; it needs a reset", True, False),
        ([79], "XID 79: it has fallen off the bus", True, True),
        ([48, 79], "XID 79: it has fallen off the bus", True, True),
        ([79, 45], "XID 79: it has fallen off the bus", True, True),
    ],
)
def test_the_worst_error_of_a_gpu_stays_with_it(
    nvml: Machine, driver: Nvml, xids: list[int], fault: str, leave: bool, lost: bool
) -> None:
    nvml.gpu("GPU-a")
    for xid in xids:
        driver.note("GPU-a", xid)
    (reading,) = driver.read()
    assert (reading.gpu.fault, reading.gpu.leave, reading.gpu.lost) == (fault, leave, lost)


def test_a_doubtful_error_that_does_not_come_again_is_forgotten(
    nvml: Machine, driver: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.gpu("GPU-a")
    nvml.gpu("GPU-b")
    monkeypatch.setattr("scheduler.gpus.nvml.DOUBT_SECONDS", 0.0)  # otherwise a day
    driver.note("GPU-a", 74)
    driver.note("GPU-b", 48)
    assert [bool(reading.gpu.fault) for reading in driver.read()] == [False, True]


def test_while_a_driver_is_replaced_its_gpus_have_a_fault_and_are_not_lost(
    nvml: Machine, driver: Nvml
) -> None:
    nvml.gpu("GPU-a")
    (well,) = driver.read()
    nvml.unload()
    (gone,) = driver.read()
    assert (gone.gpu.fault, gone.gpu.lost) == ("no driver: Driver Not Loaded", False)
    nvml.driver = "560.35.03"
    nvml.gpu("GPU-b")
    assert driver.read()[0] == well


def test_without_a_driver_there_are_no_gpus(nvml: Machine, driver: Nvml) -> None:
    nvml.gpu("GPU-a")
    nvml.unload()
    assert driver.read() == ()
